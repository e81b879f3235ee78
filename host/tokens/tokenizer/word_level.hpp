// A word is a token, or unknown, as the `tokenizers` library's WordLevel has it.
#pragma once

#include <string_view>
#include <utility>

#include "host/tokens/tokenizer/word_ids.hpp"

namespace galley {

/// Takes each word for a token. Immutable. [thread-safe]
class WordLevel {
 public:
  /// `unknown`: the token for the words that are none; where the vocabulary does not have it, they are an error.
  WordLevel(Vocabulary vocabulary, std::string_view unknown) : vocabulary_(std::move(vocabulary)), unknown_(find(unknown)) {}
  /// Appends the id of a word. Unknown: it is none, and there is no token for that.
  Encoded encode(std::string_view word, WordIds* out) const {
    const TokenId own = find(word), id = own >= 0 ? own : unknown_;
    if (id >= 0) out->add(id, word.size());
    return id >= 0 ? Encoded::Yes : Encoded::Unknown;
  }
  TokenId unknown() const { return unknown_; }

 private:
  TokenId find(std::string_view word) const {
    const auto found = vocabulary_.find(word);
    return found == vocabulary_.end() ? -1 : found->second;
  }
  Vocabulary vocabulary_;
  TokenId unknown_ = -1;
};

}  // namespace galley
