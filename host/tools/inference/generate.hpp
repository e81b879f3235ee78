// Generates tokens, one after another, with a model that a study has planned for sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/session/session.hpp"

namespace galley {

/// Says how a token is drawn from logits: they are divided by the temperature; of them the `top_k` likeliest stay (0: all), and of those
/// the fewest whose probabilities reach `top_p` (Holtzman et al. 2020, arXiv:1904.09751).
struct Draw {
  double temperature = 0.8;  ///< 0: the likeliest
  int64_t top_k = 40;
  double top_p = 1;
  uint64_t seed = 1;
};

/// Returns the token that `random`, 32 uniform bits, draws; of equally likely ones the smaller id comes first.
int32_t draw_token(std::span<const float> logits, const Draw& how, uint32_t random);

/// Continues texts by a session, to which it refers. Used by one thread.
class Generator {
 public:
  explicit Generator(Session& session);

  /// Sets what the encoder of a model with a decoder reads from now on: the first length() tokens.
  void read_source(std::span<const int32_t> tokens);
  /// Returns the logits of the token that follows, one for each token of the vocabulary, valid until the next call. The tokens of a target
  /// are those after the one that begins it. The model sees the last length() tokens.
  Result<std::span<const float>> logits(std::span<const int32_t> tokens);
  /// Returns the most tokens that the model sees: of a source, if it has one.
  int64_t length() const { return session_.study().program.length; }
  /// Returns whether it generates a target for a source.
  bool has_source() const { return session_.study().program.target_length > 0; }

 private:
  Session& session_;
  WindowBuffer window_;
  std::vector<float> logits_;
};

}  // namespace galley
