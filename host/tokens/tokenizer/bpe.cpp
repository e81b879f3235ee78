#include "host/tokens/tokenizer/bpe.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

/// Never 0.
uint64_t key_of(TokenId left, TokenId right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right)) + 1;
}
size_t slot_of(uint64_t key) { return static_cast<size_t>((key * 0x9E3779B97F4A7C15ull) >> 20); }

}  // namespace

Result<Bpe> Bpe::create(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges, BpeOptions options) {
  Bpe out;
  out.vocabulary_ = std::move(vocabulary);
  out.options_ = std::move(options);
  const auto id = [&](std::string_view token) {
    const auto it = out.vocabulary_.find(token);
    return it == out.vocabulary_.end() ? -1 : it->second;
  };
  if (!out.options_.unknown.empty()) {
    out.unknown_ = id(out.options_.unknown);
    if (out.unknown_ < 0) return recipe_error("'unk_token' = '" + out.options_.unknown + "' is not in the vocabulary");
  }
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    out.bytes_.push_back(id(name));
  }
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    out.single_.push_back(id({&c, 1}));
  }
  out.slots_.resize(std::bit_ceil(2 * merges.size() + 2));
  const size_t mask = out.slots_.size() - 1;
  const auto unprefixed = [&](const std::string& token) { return token.substr(std::min(token.size(), out.options_.continuing.size())); };
  uint32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const TokenId a = id(left), b = id(right), made = id(left + unprefixed(right));
    if (a < 0 || b < 0 || made < 0)
      return recipe_error("merge " + std::to_string(rank + 1) + ", '" + left + "' and '" + right + "': '" +
                          (a < 0   ? left
                           : b < 0 ? right
                                   : left + unprefixed(right)) +
                          "' is not in the vocabulary");
    const uint64_t key = key_of(a, b);
    size_t at = slot_of(key) & mask;
    while (out.slots_[at].key && out.slots_[at].key != key) at = (at + 1) & mask;
    out.slots_[at] = {key, {rank++, made}};  // of two merges of one pair the later counts
  }
  return out;
}

const Bpe::Merge* Bpe::find(TokenId left, TokenId right) const {
  const uint64_t key = key_of(left, right);
  const size_t mask = slots_.size() - 1;
  for (size_t at = slot_of(key) & mask;; at = (at + 1) & mask) {
    if (slots_[at].key == key) return &slots_[at].merge;
    if (!slots_[at].key) return nullptr;
  }
}

/// The word as characters, or as what stands for them.
void Bpe::split(std::string_view word, Room& room) const {
  auto& symbols = room.symbols_;
  symbols.clear();
  const auto add = [&](TokenId id, uint32_t bytes) {
    const auto at = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1, bytes});
  };
  uint32_t unknown = 0;  // bytes of unknown characters that have not been added yet
  const bool affixed = !options_.continuing.empty() || !options_.ending.empty();
  std::string spelled;  // a character as the vocabulary spells it at its place
  for (size_t at = 0; at < word.size();) {
    const bool single = options_.by_bytes || static_cast<uint8_t>(word[at]) < 0x80;
    const uint32_t length = single ? 1 : next_code_point(word.substr(at)).bytes;
    std::string_view c = word.substr(at, length);
    if (affixed) {
      spelled.assign(at > 0 ? options_.continuing : "").append(c).append(at + length == word.size() ? options_.ending : "");
      c = spelled;
    }
    at += length;
    TokenId id = -1;
    if (single && !affixed) id = single_[static_cast<uint8_t>(c[0])];
    else if (const auto it = vocabulary_.find(c); it != vocabulary_.end()) id = it->second;
    if (id >= 0) {
      if (unknown) add(unknown_, unknown);
      unknown = 0;
      add(id, length);
      continue;
    }
    if (options_.byte_fallback && std::all_of(c.begin(), c.end(), [&](char b) { return bytes_[static_cast<uint8_t>(b)] >= 0; })) {
      for (const char b : c) add(bytes_[static_cast<uint8_t>(b)], 1);
      continue;
    }
    if (unknown_ < 0) continue;
    if (unknown && !options_.fuse_unknown) {
      add(unknown_, unknown);
      unknown = 0;
    }
    unknown += length;
  }
  if (unknown) add(unknown_, unknown);
  if (!symbols.empty()) symbols.back().next = -1;
}

void Bpe::merge(std::string_view word, Room& room, WordIds* out) const {
  split(word, room);
  auto& symbols = room.symbols_;
  auto& heap = room.heap_;
  heap.clear();
  // The best merge first: the lowest rank, of equals the leftmost.
  const auto worse = [](const Room::Candidate& a, const Room::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto consider = [&](int32_t left) {
    const int32_t right = symbols[static_cast<size_t>(left)].next;
    if (right < 0) return false;
    const TokenId a = symbols[static_cast<size_t>(left)].id, b = symbols[static_cast<size_t>(right)].id;
    const Merge* found = find(a, b);
    if (found) heap.push_back({found->rank, left, a, b, found->made});
    return found != nullptr;
  };
  for (int32_t i = 0; i + 1 < static_cast<int32_t>(symbols.size()); ++i) consider(i);
  std::make_heap(heap.begin(), heap.end(), worse);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Room::Candidate best = heap.back();
    heap.pop_back();
    Room::Symbol& left = symbols[static_cast<size_t>(best.position)];
    // What it was found for may be gone by now: merged to the left (no bytes), or changed.
    if (left.bytes == 0 || left.next < 0 || left.id != best.left || symbols[static_cast<size_t>(left.next)].id != best.right) continue;
    Room::Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = best.made;
    left.bytes += right.bytes;
    left.next = right.next;
    right.bytes = 0;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    if (left.previous >= 0 && consider(left.previous)) std::push_heap(heap.begin(), heap.end(), worse);
    if (consider(best.position)) std::push_heap(heap.begin(), heap.end(), worse);
  }
  if (symbols.empty()) return;
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next)
    out->add(symbols[static_cast<size_t>(i)].id, symbols[static_cast<size_t>(i)].bytes);
}

void Bpe::encode(std::string_view word, Room& room, WordIds* out) const {
  if (options_.ignore_merges)
    if (const auto it = vocabulary_.find(word); it != vocabulary_.end()) return out->add(it->second, word.size());
  merge(word, room, out);
}

}  // namespace galley
