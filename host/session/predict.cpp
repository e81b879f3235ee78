#include "host/session/predict.hpp"

#include <algorithm>

#include "host/data/shape.hpp"
#include "host/exec/convert.hpp"

namespace galley {

Predictor::Predictor(Session& session) : session_(session) {
  const Program& program = session.study().program;
  const ProgramTensor& made = program.tensors[static_cast<size_t>(program.sample_logits)];
  window_ = {session.study().data.layout, {}, 0, 1, 0};
  window_.layout.rows = 1;
  window_.memory = session.bytes_of(program.window);
  bytes_.resize(static_cast<size_t>(made.bytes));
  logits_.resize(static_cast<size_t>(made.bytes / galley_dtype_bytes(made.dtype)));
}

Result<std::span<const float>> Predictor::logits(std::span<const int32_t> tokens, size_t second) {
  const Program& program = session_.study().program;
  const BatchRow row = window_.row(0);
  row.pad(tokens.size(), row.length());
  for (size_t i = 0; i < tokens.size(); ++i) {
    row.tokens()[i] = tokens[i];
    row.next()[i] = kNoLabel;
    row.positions()[i] = static_cast<int32_t>(i);
    row.first_key()[i] = 0;
  }
  complete_row(row, 0, tokens.size(), nullptr, {});
  if (const std::span<int32_t> types = row[Fill::TokenTypes]; !types.empty() && second < tokens.size())
    std::fill(types.begin() + static_cast<std::ptrdiff_t>(second), types.begin() + static_cast<std::ptrdiff_t>(tokens.size()), 1);
  Executor& executor = session_.executor();
  executor.tell({1, 1});
  TRY_STATUS(session_.feed(window_, 0));
  TRY_STATUS(executor.run(SegmentKind::Sample));
  TRY_STATUS(executor.synchronize());
  TRY_STATUS(executor.machine().get(program.sample_logits, 0, bytes_));
  convert(logits_.data(), GALLEY_F32, bytes_.data(), program.tensors[static_cast<size_t>(program.sample_logits)].dtype,
          static_cast<int64_t>(logits_.size()));
  return std::span<const float>(logits_);
}

}  // namespace galley
