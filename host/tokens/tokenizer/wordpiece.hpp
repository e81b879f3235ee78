// WordPiece (Wu et al. 2016, arXiv:1609.08144, as BERT uses it): a word is cut from its beginning, each time into the longest token that
// fits, as the `tokenizers` library does it.
#pragma once

#include <string>
#include <string_view>

#include "host/base/result.hpp"
#include "host/tokens/tokenizer/trie.hpp"
#include "host/tokens/tokenizer/word_ids.hpp"

namespace galley {

struct WordPieceOptions {
  std::string unknown = "[UNK]";  ///< the token for a word that tokens do not cover
  std::string continuing = "##";  ///< what tokens begin with that do not begin a word
  int64_t most_characters = 100;  ///< a longer word is unknown
};

/// Splits words into the longest pieces, from the left. Immutable. [thread-safe]
class WordPiece {
 public:
  static Result<WordPiece> create(const Vocabulary& vocabulary, WordPieceOptions options);
  /// Appends the ids of a word, which is UTF-8. Never Unknown.
  Encoded encode(std::string_view word, WordIds* out) const;
  TokenId unknown() const { return unknown_; }

 private:
  Trie begins_, continues_;  // the latter without the prefix
  TokenId unknown_ = 0;
  int64_t most_characters_ = 0;
};

}  // namespace galley
