// Keeps the ids of a word, and of the words seen last.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace galley {

using TokenId = int32_t;

/// Lets maps keyed by std::string be asked with a std::string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return XXH3_64bits(text.data(), text.size()); }
};
using Vocabulary = std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>>;

/// The ids of a word, and how many of its bytes each stands for.
struct WordIds {
  std::vector<TokenId> ids;
  std::vector<uint32_t> bytes;

  void add(TokenId id, size_t of_bytes) {
    ids.push_back(id);
    bytes.push_back(static_cast<uint32_t>(of_bytes));
  }
  void clear() {
    ids.clear();
    bytes.clear();
  }
};

/// How it ended: Unknown is a character that nothing stands for, TooSlow a word that takes more than Trie::steps_for().
enum class Encoded : uint8_t { Yes, Unknown, TooSlow };

/// Keeps the ids of the words seen last, one cache a thread. Bounded.
class WordCache {
 public:
  WordCache() : entries_(kEntries) {}

  /// The ids of a word, by `make(WordIds*)` where it has not been seen lately; null where that returns false. Valid until the next call.
  template <class Make>
  const WordIds* get(std::string_view word, Make&& make) {
    if (word.size() > kLongest) {
      long_.clear();
      return make(&long_) ? &long_ : nullptr;
    }
    const uint64_t hash = XXH3_64bits(word.data(), word.size());
    Entry& entry = entries_[hash % kEntries];
    if (entry.hash != hash || entry.word != word) {
      entry.hash = hash;
      entry.word = word;
      entry.made.clear();
      if (!make(&entry.made)) {
        entry.word.clear();
        return nullptr;
      }
    }
    return &entry.made;
  }

 private:
  static constexpr size_t kEntries = 1 << 15;
  static constexpr size_t kLongest = 128;  // bytes of a word that is worth remembering
  struct Entry {
    uint64_t hash = 0;
    std::string word;
    WordIds made;
  };
  std::vector<Entry> entries_;
  WordIds long_;
};

}  // namespace galley
