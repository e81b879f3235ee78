// Unigram language models (Kudo 2018, "Subword Regularization", arXiv:1804.10959): a word is cut into the pieces whose scores add up to
// the most, as the `tokenizers` library computes it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/base/result.hpp"
#include "host/tokens/tokenizer/trie.hpp"
#include "host/tokens/tokenizer/word_ids.hpp"

namespace galley {

struct UnigramOptions {
  TokenId unknown = -1;        ///< stands for characters that no piece covers; -1: they are an error
  bool byte_fallback = false;  ///< what is unknown becomes the tokens <0x00> … <0xFF> of its bytes, where all are there
};

/// Splits texts into the pieces that are likeliest together. Immutable. [thread-safe], with a Room a thread.
class Unigram {
 public:
  using Pieces = std::vector<std::pair<std::string, double>>;
  /// Makes one of pieces by id, each with its score: the logarithm of its probability, or at least a finite number.
  static Result<Unigram> create(Pieces pieces, UnigramOptions options);

  /// For the work: one a thread.
  class Room {
    friend class Unigram;
    struct Best {
      double score;
      size_t begin;  // of the last piece
      TokenId id;
    };
    std::vector<Best> best_;                        // by byte of the word, of the paths that end there
    std::vector<std::pair<size_t, TokenId>> path_;  // pieces from the last to the first: where each begins
  };

  /// Appends the ids of a word, which is UTF-8.
  Encoded encode(std::string_view word, Room& room, WordIds* out) const;
  TokenId unknown() const { return options_.unknown; }

 private:
  void add_unknown(std::string_view text, WordIds* out) const;
  Trie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  UnigramOptions options_;
  std::vector<TokenId> bytes_;  // <0x00> … <0xFF>; -1: not there
};

}  // namespace galley
