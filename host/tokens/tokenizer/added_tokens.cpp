#include "host/tokens/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "host/tokens/tokenizer/trie.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

/// The code point that `text` ends with; 0 for an empty text.
char32_t last_code_point(std::string_view text) {
  size_t at = text.size();
  while (at > 0 && (static_cast<uint8_t>(text[--at]) & 0xC0) == 0x80) {}
  return text.empty() ? 0 : next_code_point(text.substr(at)).value;
}

}  // namespace

bool touches(std::span<const TextSpan> spans, size_t begin, size_t end) {
  const auto it = std::partition_point(spans.begin(), spans.end(), [&](const TextSpan& span) { return span.end <= begin; });
  return it != spans.end() && it->begin < std::max(end, begin + 1);
}

AddedTokens::AddedTokens() : trie_(1) {}

void AddedTokens::add(const AddedToken& token, const std::string& text) {
  if (text.empty()) return;
  size_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t to = child(node, byte);
    if (to < 0) {
      to = static_cast<int32_t>(trie_.size());
      auto& next = trie_[node].next;
      next.insert(std::ranges::lower_bound(next, std::pair(byte, 0)), {byte, to});
      trie_.emplace_back();
    }
    node = static_cast<size_t>(to);
  }
  if (trie_[node].token >= 0) return;  // of two with one text the first is found
  trie_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  has_special_ |= token.special;
  begins_[static_cast<uint8_t>(text[0])] = true;
}

int32_t AddedTokens::child(size_t node, uint8_t byte) const {
  const auto& next = trie_[node].next;
  const auto at = std::ranges::lower_bound(next, std::pair(byte, 0));
  return at != next.end() && at->first == byte ? at->second : -1;
}

int32_t AddedTokens::longest(std::string_view text, size_t at, size_t* end, size_t* steps) const {
  int32_t found = -1;
  size_t node = 0;
  for (size_t i = at; i < text.size(); ++i, ++*steps) {
    const int32_t to = child(node, static_cast<uint8_t>(text[i]));
    if (to < 0) break;
    node = static_cast<size_t>(to);
    if (trie_[node].token >= 0) {
      found = trie_[node].token;
      *end = i + 1;
    }
  }
  return found;
}

Result<bool> AddedTokens::find(std::string_view text, size_t from, Special special, std::span<const TextSpan> plain, Found* out) const {
  if (tokens_.empty()) return false;
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<uint8_t>(text[at])]) continue;
    size_t end = 0;
    const int32_t index = longest(text, at, &end, &out->steps);
    if (out->steps > Trie::steps_for(text.size()))
      return recipe_error("looking for added tokens takes more than " + std::to_string(Trie::kSteps) +
                          " steps a byte: there are some of thousands of bytes that begin alike");
    if (index < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    const bool in_a_word = token.single_word && ((at > 0 && is_word(last_code_point(text.substr(0, at)))) ||
                                                 (end < text.size() && is_word(next_code_point(text.substr(end)).value)));
    if (in_a_word || (token.special && special == Special::Text)) {
      at = end - 1;  // what was matched is passed over as a whole
      continue;
    }
    if (token.special && touches(plain, at, end)) continue;
    size_t begin = at;
    if (token.lstrip) {
      while (begin > from) {
        size_t before = begin;
        while (before > from && (static_cast<uint8_t>(text[--before]) & 0xC0) == 0x80) {}
        if (!is_space(next_code_point(text.substr(before)).value)) break;
        begin = before;
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const CodePoint c = next_code_point(text.substr(end));
        if (!is_space(c.value)) break;
        end += c.bytes;
      }
    }
    *out = {begin, end, &token, out->steps};
    return true;
  }
  return false;
}

}  // namespace galley
