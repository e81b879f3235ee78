#include "host/tools/inference/one_row.hpp"

#include "host/exec/convert.hpp"

namespace galley {

OneRow::OneRow(Session& session) : session_(session) {
  const Program& program = session.study().program;
  const ProgramTensor& made = program.tensors[static_cast<size_t>(program.sample_logits)];
  window_ = {session.study().data.layout, {}, 0, 1, 0};
  window_.layout.rows = 1;
  window_.memory = session.bytes_of(program.window);
  bytes_.resize(static_cast<size_t>(made.bytes));
  numbers_.resize(static_cast<size_t>(made.bytes / galley_dtype_bytes(made.dtype)));
}

Result<std::span<const float>> OneRow::run() {
  const TensorId made = session_.study().program.sample_logits;
  Executor& executor = session_.executor();
  executor.tell({1, 1});
  TRY_STATUS(session_.feed(window_, 0));
  TRY_STATUS(executor.run(SegmentKind::Sample));
  TRY_STATUS(executor.synchronize());
  TRY_STATUS(executor.machine().get(made, 0, bytes_));
  convert(numbers_.data(), GALLEY_F32, bytes_.data(), session_.study().program.tensors[static_cast<size_t>(made)].dtype,
          static_cast<int64_t>(numbers_.size()));
  return std::span<const float>(numbers_);
}

}  // namespace galley
