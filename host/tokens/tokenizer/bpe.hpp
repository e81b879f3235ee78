// Byte-pair encoding (Sennrich, Haddow, Birch 2016, arXiv:1508.07909): words to ids by ranked merges, as the `tokenizers` library
// computes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/base/result.hpp"
#include "host/tokens/tokenizer/word_ids.hpp"

namespace galley {

struct BpeOptions {
  bool by_bytes = false;       ///< words begin as bytes; else as characters
  std::string unknown;         ///< the token for what no token covers; "": such characters are left out
  bool fuse_unknown = false;   ///< several in a row become one
  bool byte_fallback = false;  ///< a character without a token becomes the tokens <0x00> … <0xFF> of its bytes, where all are there
  bool ignore_merges = false;  ///< a word that is a token is that token, whatever the merges say
  std::string continuing;      ///< tokens that do not begin a word begin with it; merges leave out that of their right side
  std::string ending;          ///< tokens that end a word end with it
};

/// Splits words into tokens by byte-pair merges. Immutable. [thread-safe], with a Room a thread.
class Bpe {
 public:
  /// `merges`: pairs of tokens, the earlier the better. A merge whose tokens or result are not in the vocabulary is an error.
  static Result<Bpe> create(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges, BpeOptions options);

  /// For the work: one a thread.
  class Room {
    friend class Bpe;
    struct Symbol {
      TokenId id;
      int32_t previous, next;
      uint32_t bytes;
    };
    struct Candidate {
      uint32_t rank;
      int32_t position;
      TokenId left, right, made;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  /// Appends the ids of a word, in the vocabulary's own alphabet. An empty one has none.
  void encode(std::string_view word, Room& room, WordIds* out) const;
  TokenId unknown() const { return unknown_; }

 private:
  struct Merge {
    uint32_t rank;
    TokenId made;
  };
  void merge(std::string_view word, Room& room, WordIds* out) const;
  void split(std::string_view word, Room& room) const;
  const Merge* find(TokenId left, TokenId right) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  TokenId unknown_ = -1;
  std::vector<TokenId> bytes_;   // of <0x00> … <0xFF>; -1: not there
  std::vector<TokenId> single_;  // of words of one byte; -1: not there
  // Merges by their pair, open addressing; a power of two of slots, the key 0 is free.
  struct Slot {
    uint64_t key = 0;
    Merge merge = {};
  };
  std::vector<Slot> slots_;
};

}  // namespace galley
