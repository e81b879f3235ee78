#include "host/tokens/tokenizer/bpe_trainer.hpp"

#include <algorithm>
#include <queue>

#include "host/tokens/tokenizer/byte_alphabet.hpp"

namespace galley {
namespace {

struct Word {
  std::vector<uint32_t> symbols;
  int64_t count = 0;
};

uint64_t pack(uint32_t left, uint32_t right) { return static_cast<uint64_t>(left) << 32 | right; }

/// How often a pair occurs, and in which words it may.
struct Pair {
  int64_t count = 0;
  std::vector<uint32_t> words;
};

struct Candidate {
  int64_t count;
  uint64_t pair;
  friend bool operator<(const Candidate& a, const Candidate& b) { return a.count != b.count ? a.count < b.count : a.pair > b.pair; }
};

/// Replaces the pair in a word; tells how often which other pairs come and go.
template <class Change>
void replace(Word& word, uint64_t pair, uint32_t by, const Change& change) {
  auto& symbols = word.symbols;
  size_t to = 0;
  for (size_t from = 0; from < symbols.size(); ++to) {
    const bool here = from + 1 < symbols.size() && pack(symbols[from], symbols[from + 1]) == pair;
    if (!here) {
      symbols[to] = symbols[from++];
      continue;
    }
    const uint32_t left = symbols[from], right = symbols[from + 1];
    if (to > 0) {
      change(pack(symbols[to - 1], left), -1);
      change(pack(symbols[to - 1], by), 1);
    }
    from += 2;
    if (from < symbols.size()) {
      change(pack(right, symbols[from]), -1);
      change(pack(by, symbols[from]), 1);
    }
    symbols[to] = by;
  }
  symbols.resize(to);
}

}  // namespace

TrainedBpe train_bpe(const WordCounts& counts, size_t vocabulary, size_t specials) {
  TrainedBpe out;
  out.tokens.resize(specials);
  std::vector<uint32_t> id_of_byte(256);
  for (const std::string& character : byte_characters()) {
    const std::string byte = *bytes_of_text(character);
    id_of_byte[static_cast<uint8_t>(byte[0])] = static_cast<uint32_t>(out.tokens.size());
    out.tokens.push_back(byte);
  }

  // Maps have no order of their own: words come in theirs.
  std::vector<std::pair<std::string_view, uint64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  std::unordered_map<uint64_t, Pair> pairs;
  for (const auto& [text, count] : sorted) {
    Word word;
    word.count = static_cast<int64_t>(count);
    for (const char c : text) word.symbols.push_back(id_of_byte[static_cast<uint8_t>(c)]);
    for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
      Pair& pair = pairs[pack(word.symbols[i], word.symbols[i + 1])];
      pair.count += word.count;
      if (pair.words.empty() || pair.words.back() != words.size()) pair.words.push_back(static_cast<uint32_t>(words.size()));
    }
    words.push_back(std::move(word));
  }
  std::priority_queue<Candidate> queue;
  for (const auto& [key, pair] : pairs) queue.push({pair.count, key});

  std::unordered_map<std::string, uint32_t> ids;
  for (size_t i = specials; i < out.tokens.size(); ++i) ids.emplace(out.tokens[i], static_cast<uint32_t>(i));
  while (out.tokens.size() < vocabulary && !queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const int64_t now = pairs[best.pair].count;
    if (now != best.count) {
      if (now > 0) queue.push({now, best.pair});
      continue;
    }
    if (now < 1) break;
    const auto left = static_cast<uint32_t>(best.pair >> 32), right = static_cast<uint32_t>(best.pair);
    const std::string text = out.tokens[left] + out.tokens[right];
    const auto [it, added] = ids.emplace(text, static_cast<uint32_t>(out.tokens.size()));
    if (added) out.tokens.push_back(text);
    const uint32_t made = it->second;
    out.merges.emplace_back(left, right);

    const std::vector<uint32_t> where = std::move(pairs[best.pair].words);
    pairs[best.pair] = {};
    std::vector<uint64_t> grown;
    for (const uint32_t w : where) {
      replace(words[w], best.pair, made, [&](uint64_t key, int64_t delta) {
        Pair& pair = pairs[key];
        pair.count += delta * words[w].count;
        if (delta < 0) return;
        grown.push_back(key);
        if (pair.words.empty() || pair.words.back() != w) pair.words.push_back(w);
      });
    }
    std::sort(grown.begin(), grown.end());
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const uint64_t key : grown)
      if (pairs[key].count > 0) queue.push({pairs[key].count, key});
  }
  return out;
}

}  // namespace galley
