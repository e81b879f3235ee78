// What a model with labels or values makes of texts, one at a time.
#pragma once

#include <cstdint>
#include <span>

#include "host/tools/inference/one_row.hpp"

namespace galley {

/// Of a study for Purpose::Predict.
class Predictor {
 public:
  explicit Predictor(Session& session) : session_(session), row_(session) {}
  /// The most tokens of a row.
  int64_t length() const { return session_.study().program.length; }
  /// What the head makes of a row of tokens, at most length(); those from `second` on are of the second of two texts. Valid until the next
  /// call.
  Result<std::span<const float>> logits(std::span<const int32_t> tokens, size_t second);

 private:
  Session& session_;
  OneRow row_;
};

}  // namespace galley
