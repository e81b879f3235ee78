// One row through the model, and what it makes of it: hidden states for embed.hpp, the head's logits for predict.hpp.
#pragma once

#include <span>
#include <vector>

#include "host/session/session.hpp"

namespace galley {

/// Of a session whose purpose makes one tensor of a row (Program::sample_logits). Used by one thread.
class OneRow {
 public:
  explicit OneRow(Session& session);
  /// Where the row is written: tokens, positions and keys.
  BatchRow row() { return window_.row(0); }
  /// Runs the segment Sample on the row. What it makes, in F32: valid until the next call.
  Result<std::span<const float>> run();

 private:
  Session& session_;
  WindowBuffer window_;
  std::vector<std::byte> bytes_;
  std::vector<float> numbers_;
};

}  // namespace galley
