#include "host/tokens/tokenizer/trie.hpp"

#include <algorithm>

namespace galley {

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> keys) : nodes_(1), first_(256, kRoot) {
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // Level by level: the keys of a node are a range of all, which agree in their first `depth` bytes.
  struct Keys {
    size_t begin, end;
  };
  std::vector<Keys> level = {{0, keys.size()}}, below;
  uint32_t node = 0;  // of the first range of the level
  for (size_t depth = 0; !level.empty(); ++depth) {
    below.clear();
    for (const Keys& range : level) {
      size_t at = range.begin;
      for (; at < range.end && keys[at].first.size() == depth; ++at)
        if (depth > 0) nodes_[node].value = keys[at].second;
      nodes_[node].children = static_cast<uint32_t>(nodes_.size());
      while (at < range.end) {
        const char byte = keys[at].first[depth];
        size_t end = at + 1;
        while (end < range.end && keys[end].first[depth] == byte) ++end;
        if (depth == 0) first_[static_cast<uint8_t>(byte)] = static_cast<uint32_t>(nodes_.size());
        ++nodes_[node].count;
        nodes_.push_back({0, -1, 0, static_cast<uint8_t>(byte)});
        below.push_back({at, end});
        at = end;
      }
      ++node;
    }
    std::swap(level, below);
  }
}

int32_t Trie::find(std::string_view key) const {
  uint32_t node = kRoot;
  for (const char c : key) {
    node = next(node, static_cast<uint8_t>(c));
    if (node == kRoot) return -1;
  }
  return value(node);
}

}  // namespace galley
