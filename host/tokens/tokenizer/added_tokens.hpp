// Finds added tokens, such as <|im_start|>, in a text before anything else is done to it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"
#include "host/tokens/tokenizer/word_ids.hpp"

namespace galley {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  ///< only where no word goes on before or after it
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< and after it
  bool normalized = false;   ///< looked for in the normalized text
  bool special = false;
};

/// Bytes [begin, end) of a text.
struct TextSpan {
  size_t begin = 0, end = 0;
};

/// Whether [begin, end) touches one of the spans, which are in order. An empty one is taken for one byte.
bool touches(std::span<const TextSpan> spans, size_t begin, size_t end);

/// A set of them, found from left to right, of several at one place the longest. Immutable. [thread-safe]
class AddedTokens {
 public:
  struct Found {
    size_t begin = 0, end = 0;  ///< with the white space that it takes
    const AddedToken* token = nullptr;
    size_t steps = 0;  ///< that looking for them has taken in this text so far
  };
  static constexpr size_t kMostBytes = size_t{4} << 20;  ///< of all of them together
  AddedTokens();
  /// `text`: what stands for it where it is looked for. An empty one is never found.
  void add(const AddedToken& token, const std::string& text);
  bool empty() const { return tokens_.empty(); }

  enum class Special : uint8_t { Token, Text };  ///< Text: special tokens are not looked for
  bool has_special() const { return has_special_; }
  /// The next one at or after `from`; false: none. Spans do not reach back before `from`. Special ones that touch a span of `plain`, which
  /// are in order, are not looked for either. An error where a text takes more than Trie::steps_for(), of all calls for it.
  Result<bool> find(std::string_view text, size_t from, Special special, std::span<const TextSpan> plain, Found* out) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> next;  // in order
    int32_t token = -1;
  };
  int32_t child(size_t node, uint8_t byte) const;
  int32_t longest(std::string_view text, size_t at, size_t* end, size_t* steps) const;
  std::vector<Node> trie_;
  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_ = {};
  bool has_special_ = false;
};

}  // namespace galley
