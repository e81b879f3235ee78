#include "host/tools/inference/embed.hpp"

#include <algorithm>

#include "host/sources/shape.hpp"

namespace galley {

Embedder::Embedder(Session& session, Take take) : session_(session), take_(std::move(take)), row_(session) {
  const Program& program = session.study().program;
  width_ = program.tensors[static_cast<size_t>(program.sample_logits)].shape.back();
}

Status Embedder::add(std::span<const int32_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (filled_ + n > length()) TRY_STATUS(finish());
  const BatchRow row = row_.row();
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
  const BatchRow row = row_.row();
  row.pad(static_cast<size_t>(filled_), row.length());
  complete_row(row, 0, static_cast<size_t>(filled_), nullptr, {});
  const std::span<const float> states = TRY(row_.run());
  for (const Piece& piece : pieces_)
    TRY_STATUS(take_(taken_++, states.subspan(static_cast<size_t>(piece.begin * width_), static_cast<size_t>(piece.tokens * width_))));
  pieces_.clear();
  filled_ = 0;
  return ok();
}

}  // namespace galley
