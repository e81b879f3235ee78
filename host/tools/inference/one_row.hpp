// Runs the model on one row and returns its result: hidden states for embed.hpp, the head's logits for predict.hpp.
#pragma once

#include <span>
#include <vector>

#include "host/session/session.hpp"

namespace galley {

/// Of a session whose purpose makes one tensor of a row (Program::sample_logits). Used by one thread.
class OneRow {
 public:
  explicit OneRow(Session& session);
  /// Returns the row to write to: tokens, positions and keys.
  BatchRow row() { return window_.row(0); }
  /// Runs the segment Sample on the row and returns its result in F32, valid until the next call.
  Result<std::span<const float>> run();

 private:
  Session& session_;
  WindowBuffer window_;
  std::vector<std::byte> bytes_;
  std::vector<float> numbers_;
};

}  // namespace galley
