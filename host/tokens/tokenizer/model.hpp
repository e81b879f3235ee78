// The model of a tokenizer.json turns words into ids.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "host/base/result.hpp"
#include "host/base/value.hpp"
#include "host/tokens/tokenizer/bpe.hpp"
#include "host/tokens/tokenizer/unigram.hpp"
#include "host/tokens/tokenizer/word_ids.hpp"
#include "host/tokens/tokenizer/word_level.hpp"
#include "host/tokens/tokenizer/wordpiece.hpp"

namespace galley {

/// BPE, Unigram, WordPiece or WordLevel. Immutable. [thread-safe], with a Work a thread.
class Model {
 public:
  using Named = std::function<void(TokenId, const std::string&)>;  ///< a token of the vocabulary
  /// `spec`: the value of "model". `byte_level`: words are bytes, which the file writes in GPT-2's alphabet. Calls `named` with all tokens.
  static Result<Model> read(const Value& spec, bool byte_level, const Named& named);

  class Work {
    friend class Model;
    WordCache cache_;
    Bpe::Room bpe_;
    Unigram::Room unigram_;
    Encoded ended_ = Encoded::Yes;
  };
  /// Returns the ids of a word, which must not be empty, valid until the next call; null if there are none, and problem_of() says why.
  const WordIds* encode(std::string_view word, Work& work) const;
  /// Why encode() gave null.
  static Error problem_of(const Work& work);
  /// The token of what no other token covers; -1: there is none.
  TokenId unknown() const { return unknown_; }

 private:
  std::variant<Bpe, Unigram, WordPiece, WordLevel> model_;
  TokenId unknown_ = -1;
};

/// Returns an id of the file: an integer in [0, 2^24).
Result<TokenId> token_id(const Value* value, const std::string& where);

}  // namespace galley
