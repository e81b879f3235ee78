#include "host/tokens/tokenizer/wordpiece.hpp"

#include <algorithm>

namespace galley {

Result<WordPiece> WordPiece::create(const Vocabulary& vocabulary, WordPieceOptions options) {
  WordPiece out;
  const auto unknown = vocabulary.find(options.unknown);
  if (unknown == vocabulary.end()) return recipe_error("'unk_token' = '" + options.unknown + "' is not in the vocabulary");
  if (options.most_characters < 0)
    return recipe_error("'max_input_chars_per_word' is " + std::to_string(options.most_characters) + "; it must not be negative");
  out.unknown_ = unknown->second;
  out.most_characters_ = options.most_characters;
  std::vector<std::pair<std::string_view, int32_t>> begins, continues;
  for (const auto& [token, id] : vocabulary) {
    if (token.size() > Trie::kLongestToken)
      return recipe_error("token " + std::to_string(id) + " has " + std::to_string(token.size()) + " bytes; 16384 are the most");
    begins.emplace_back(token, id);
    if (token.starts_with(options.continuing)) continues.emplace_back(std::string_view(token).substr(options.continuing.size()), id);
  }
  out.begins_ = Trie(std::move(begins));
  out.continues_ = Trie(std::move(continues));
  return out;
}

Encoded WordPiece::encode(std::string_view word, WordIds* out) const {
  const auto characters = std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  const size_t before = out->ids.size(), most = Trie::steps_for(word.size());
  const auto unknown = [&] {
    out->ids.resize(before);
    out->bytes.resize(before);
    out->add(unknown_, word.size());
    return Encoded::Yes;
  };
  if (characters > most_characters_) return unknown();
  size_t steps = 0;
  for (size_t begin = 0; begin < word.size();) {
    const Trie& trie = begin == 0 ? begins_ : continues_;
    size_t best = begin;
    TokenId id = -1;
    uint32_t node = Trie::kRoot;
    if (steps > most) return Encoded::TooSlow;
    for (size_t end = begin; end < word.size(); ++steps) {
      node = trie.next(node, static_cast<uint8_t>(word[end++]));
      if (node == Trie::kRoot) break;
      if (trie.value(node) < 0) continue;
      best = end;
      id = trie.value(node);
    }
    if (id < 0) return unknown();
    out->add(id, best - begin);
    begin = best;
  }
  return Encoded::Yes;
}

}  // namespace galley
