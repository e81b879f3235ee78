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

  /// Of a model with an encoder and a decoder: what the encoder reads from now on, its first length() tokens.
  void read_source(std::span<const int32_t> tokens);
  /// What may follow the tokens, of a target those after the one that begins it: one number for each token of the vocabulary, valid until the next call. The model sees the last length()
  /// tokens.
  Result<std::span<const float>> logits(std::span<const int32_t> tokens);
  /// The most tokens that the model sees; of a source, where it has one.
  int64_t length() const { return session_.study().program.length; }
  /// Whether what is generated is a target beside a source.
  bool has_source() const { return session_.study().program.target_length > 0; }

 private:
  Session& session_;
  WindowBuffer window_;
  std::vector<float> logits_;
};

}  // namespace galley
