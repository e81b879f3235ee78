// Predicts the labels or values of texts, one at a time.
#pragma once

#include <cstdint>
#include <span>

#include "host/tools/inference/one_row.hpp"

namespace galley {

/// Predicts with a session whose study is for Purpose::Predict.
class Predictor {
 public:
  explicit Predictor(Session& session) : session_(session), row_(session) {}
  /// Returns the most tokens of a row.
  int64_t length() const { return session_.study().program.length; }
  /// Returns the head's output for a row of at most length() tokens, valid until the next call. Tokens from `second` on are of the second
  /// of two texts.
  Result<std::span<const float>> logits(std::span<const int32_t> tokens, size_t second);

 private:
  Session& session_;
  OneRow row_;
};

}  // namespace galley
