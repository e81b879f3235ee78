// Generates tokens, one after another, with a model that a study has planned for sampling.
//
// Where the program has caches of keys and values, each token costs the work of one position; a prompt is taken in pieces. Where it has
// none (Program::uncached says why), each token costs the work of a whole row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/session/session.hpp"

namespace galley {

/// Says how a token is drawn from logits, step by step and as transformers does it:
///   logits of tokens that the text has are divided by `repetition_penalty`, or multiplied where they are below 0 (Keskar et al. 2019,
///   arXiv:1909.05858); all are divided by the temperature; the `top_k` likeliest tokens stay (0: all); of these the fewest whose
///   probabilities reach `top_p` (Holtzman et al. 2020, arXiv:1904.09751); of these those at least `min_p` times as likely as the
///   likeliest (Nguyen et al. 2024, arXiv:2407.01082).
struct Draw {
  double temperature = 0.8;  ///< 0: the likeliest
  int64_t top_k = 40;
  double top_p = 1, min_p = 0;
  double repetition_penalty = 1;
  uint64_t seed = 1;
};

/// Returns the token that `random`, 32 uniform bits, draws after a text of these tokens; of equally likely ones the smaller id comes first.
int32_t draw_token(std::span<const float> logits, const Draw& how, std::span<const int32_t> text, uint32_t random);

/// Continues texts by a session, to which it refers. Used by one thread.
class Generator {
 public:
  explicit Generator(Session& session);

  /// Sets what the encoder of a model with a decoder reads of each text from now on: the first length() tokens. All rows have to be set.
  void read_source(std::span<const int32_t> tokens, int64_t row = 0);
  /// Returns the logits of the token that follows each of rows() texts, (rows, vocabulary), valid until the next call. The tokens of a
  /// target are those after the one that begins it. The model sees the last length() tokens. What a text shares with that of the call
  /// before, from its begin on, is not computed again.
  Result<std::span<const float>> logits(std::span<const std::span<const int32_t>> texts);
  /// Returns those of a single text.
  Result<std::span<const float>> logits(std::span<const int32_t> text) { return logits(std::span(&text, 1)); }

  /// Returns the most tokens that the model sees: of a source, if it has one.
  int64_t length() const { return program_.length; }
  /// Returns how many tokens the model knows.
  int64_t vocabulary() const { return program_.vocabulary; }
  /// Returns how many texts it continues at once.
  int64_t rows() const { return program_.rows; }
  /// Returns whether it generates a target for a source.
  bool has_source() const { return program_.target_length > 0; }

 private:
  bool is_cached() const { return program_.cached.start != no_tensor; }
  /// Returns how many tokens a text or a target may have, to be seen.
  size_t context() const { return static_cast<size_t>(has_source() ? program_.target_length : program_.length); }
  Status take_source();
  std::span<const int32_t> numbers_of(Fill fill);
  Status take_row(std::span<const int32_t> text);
  Status take_pieces(std::span<const std::span<const int32_t>> texts);
  Status take_positions(std::span<const std::span<const int32_t>> texts, SegmentKind segment);
  Status put(TensorId tensor, std::span<const int32_t> numbers);
  Status run(SegmentKind segment, TensorId logits);

  Session& session_;
  const Program& program_;
  WindowBuffer window_;
  bool begun_ = false, source_taken_ = false;
  std::vector<std::vector<int32_t>> known_;  ///< of each row: the tokens whose keys and values are in the caches
  std::vector<int32_t> tokens_, positions_, start_, last_, others_;
  std::vector<float> logits_;
};

}  // namespace galley
