// The decoder of a tokenizer.json turns tokens into text. It is read from the file's description; a rule that is not supported is an error
// that names it.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "host/base/value.hpp"
#include "host/tokens/tokenizer/fields.hpp"
#include "host/tokens/tokenizer/growth.hpp"
#include "host/tokens/tokenizer/metaspace.hpp"
#include "host/tokens/tokenizer/replace.hpp"

namespace galley {

/// Makes text of tokens, as the file's "decoder" says. Immutable. [thread-safe]
class Decoder {
 public:
  static Result<Decoder> read(const Value* spec, const std::string& where);
  /// Returns the text of tokens, which are as in the vocabulary. If a regular expression gives up, its rule is left out.
  std::string join(std::vector<std::string> tokens) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Strip {
    std::string content;
    int64_t start = 0, stop = 0;
  };
  struct WordPiece {
    std::string continuing;
    bool cleans = true;
  };
  struct EndOfWord {
    std::string suffix;
  };
  Status add(const Value& spec, const std::string& where);
  std::vector<std::variant<ByteLevel, ByteFallback, Fuse, Strip, WordPiece, EndOfWord, Metaspace, Replacement>> stages_;
  Growth growth_;
  bool none_ = true;
};

}  // namespace galley
