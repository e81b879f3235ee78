// Computes the hidden states that a model has of texts, from a study that was planned to embed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "host/tools/inference/one_row.hpp"

namespace galley {

/// Puts texts beside each other into rows, as many as fit, none of which sees another; so what a text has does not depend on its
/// neighbours. Refers to the session. One thread.
class Embedder {
 public:
  /// Receives the hidden states of text number `text`, in order: (tokens, width), in F32. They are valid during the call.
  using Take = std::function<Status(int64_t text, std::span<const float> states)>;

  Embedder(Session& session, Take take);

  /// Adds a text of at least one token and at most length().
  Status add(std::span<const int32_t> tokens);
  /// Runs the model on the texts that have been added and not yet run.
  Status finish();
  /// Returns the most tokens that a text may have.
  int64_t length() const { return session_.study().program.length; }
  /// Returns how many numbers the hidden state of a position has.
  int64_t width() const { return width_; }

 private:
  struct Piece {
    int64_t begin, tokens;
  };
  Session& session_;
  Take take_;
  OneRow row_;
  int64_t width_ = 0;
  int64_t filled_ = 0, taken_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace galley
