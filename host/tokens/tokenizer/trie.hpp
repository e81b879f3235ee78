// A trie: a set of strings, each with a number, that finds all strings with which a text begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace galley {

/// Finds the longest of a set of texts that begins at a place. Immutable. [thread-safe]
class Trie {
 public:
  /// What tokens of models are held to: a text is looked up from each of its characters on, as far as a token may reach.
  static constexpr size_t kLongestToken = 16384;
  /// What a text may take to be looked up: so many steps a byte, and some beyond. Only tokens that are longer and begin alike, over and
  /// over, take more: it grows with the text times their length.
  static constexpr size_t kSteps = 256;
  static constexpr size_t steps_for(size_t bytes) { return kSteps * bytes + (size_t{1} << 16); }

  Trie() : nodes_(1) {}
  /// Keys and their numbers, which are not negative. Of two equal keys the later counts; an empty one is never found.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> keys);

  static constexpr uint32_t kRoot = 0;
  /// The node after another by one byte; kRoot: there is none.
  uint32_t next(uint32_t node, uint8_t byte) const {
    if (node == kRoot) return first_.empty() ? kRoot : first_[byte];
    const Node& of = nodes_[node];
    uint32_t low = of.children, high = of.children + of.count;
    while (high - low > 8) {
      const uint32_t middle = low + (high - low) / 2;
      (nodes_[middle].byte <= byte ? low : high) = middle;
    }
    for (; low < high; ++low)
      if (nodes_[low].byte == byte) return low;
    return kRoot;
  }
  /// The number of the key that ends at a node; -1: none does.
  int32_t value(uint32_t node) const { return nodes_[node].value; }
  /// The number of a key; -1: it is none.
  int32_t find(std::string_view key) const;

 private:
  struct Node {
    uint32_t children = 0;  // the first of them: they stand together, by their bytes
    int32_t value = -1;
    uint16_t count = 0;
    uint8_t byte = 0;
  };
  std::vector<Node> nodes_;
  std::vector<uint32_t> first_;  // by byte, the children of the root
};

}  // namespace galley
