// One token after the other from a model that a study has planned for sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/session/session.hpp"

namespace galley {

/// How a token is drawn from logits: divided by the temperature, of them the `top_k` likeliest (0: all), of those the fewest whose
/// probabilities reach `top_p` (Holtzman et al. 2020, arXiv:1904.09751).
struct Draw {
  double temperature = 0.8;  ///< 0: the likeliest
  int64_t top_k = 40;
  double top_p = 1;
  uint64_t seed = 1;
};

/// The token that `random`, 32 uniform bits, draws; of equally likely ones the smaller id comes first.
int32_t draw_token(std::span<const float> logits, const Draw& how, uint32_t random);

/// Refers to the session. One thread.
class Generator {
 public:
  explicit Generator(Session& session);

  /// What may follow the tokens: one number for each token of the vocabulary, valid until the next call. The model sees the last length()
  /// tokens.
  Result<std::span<const float>> logits(std::span<const int32_t> tokens);
  /// The most tokens that the model sees.
  int64_t length() const { return session_.study().program.length; }

 private:
  Session& session_;
  WindowBuffer window_;
  std::vector<float> logits_;
};

}  // namespace galley
