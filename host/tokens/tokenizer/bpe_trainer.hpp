// Trains byte-pair encoding (Sennrich, Haddow, Birch 2016, arXiv:1508.07909) over bytes (Radford et al. 2019): finds the same merges as the
// trainer of the `tokenizers` library in the same text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/tokens/tokenizer/bpe.hpp"

namespace galley {

/// How often each word occurs: a word is its bytes. Used by one thread at a time.
using WordCounts = std::unordered_map<std::string, uint64_t, TextHash, std::equal_to<>>;

struct TrainedBpe {
  std::vector<std::string> tokens;                    ///< by id, as bytes: `specials` empty places first, then the bytes, then the merges
  std::vector<std::pair<uint32_t, uint32_t>> merges;  ///< ids, the best first
};

/// Merges the pair that is most frequent, of equally frequent ones the one with the smaller ids, until there are `vocabulary` tokens or
/// no pair is left. `specials` ids at the beginning are left free. Bytes stand in the order of the characters that write them
/// (bytes_of_text()).
TrainedBpe train_bpe(const WordCounts& words, size_t vocabulary, size_t specials);

}  // namespace galley
