#include "host/session/embed.hpp"

#include <algorithm>

#include "host/data/shape.hpp"
#include "host/exec/convert.hpp"

namespace galley {

Embedder::Embedder(Session& session, Take take) : session_(session), take_(std::move(take)) {
  const Program& program = session.study().program;
  const ProgramTensor& states = program.tensors[static_cast<size_t>(program.sample_logits)];
  window_ = {session.study().data.layout, {}, 0, 1, 0};
  window_.layout.rows = 1;
  window_.memory = session.bytes_of(program.window);
  width_ = states.shape.back();
  bytes_.resize(static_cast<size_t>(states.bytes));
  states_.resize(static_cast<size_t>(program.length * width_));
}

Status Embedder::add(std::span<const int32_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (filled_ + n > length()) TRY_STATUS(finish());
  const BatchRow row = window_.row(0);
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(filled_ + i);
    row.tokens()[at] = tokens[static_cast<size_t>(i)];
    row.next()[at] = kNoLabel;
    row.positions()[at] = static_cast<int32_t>(i);
    row.first_key()[at] = static_cast<int32_t>(filled_);
  }
  pieces_.push_back({filled_, n});
  filled_ += n;
  return ok();
}

Status Embedder::finish() {
  if (pieces_.empty()) return ok();
  const Program& program = session_.study().program;
  const BatchRow row = window_.row(0);
  row.pad(static_cast<size_t>(filled_), row.length());
  complete_row(row, 0, static_cast<size_t>(filled_), nullptr, {});
  Executor& executor = session_.executor();
  executor.tell({1, 1});
  TRY_STATUS(session_.feed(window_, 0));
  TRY_STATUS(executor.run(SegmentKind::Sample));
  TRY_STATUS(executor.synchronize());
  TRY_STATUS(executor.machine().get(program.sample_logits, 0, bytes_));
  convert(states_.data(), GALLEY_F32, bytes_.data(), program.tensors[static_cast<size_t>(program.sample_logits)].dtype,
          static_cast<int64_t>(states_.size()));
  for (const Piece& piece : pieces_)
    TRY_STATUS(
        take_(taken_++, std::span(states_).subspan(static_cast<size_t>(piece.begin * width_), static_cast<size_t>(piece.tokens * width_))));
  pieces_.clear();
  filled_ = 0;
  return ok();
}

}  // namespace galley
