// data.random {}: uniform tokens, one document in each row. Every position counts; the last predicts a token that is drawn beyond the row.
// What else a model learns is drawn, too. Each number depends on the seed, the window, the row in it and its place there alone: 8 rows at
// once and 8 times one row are the same data.
#include "galley/cpp/source.hpp"
#include "galley/philox.h"

namespace {

using namespace galley::sdk;

/// Half `half` of a block as 64 bits, and what these are in [0, bound): the high word of their product.
uint64_t below(const galley_philox_block& block, size_t half, uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  const uint64_t bits = static_cast<uint64_t>(block.word[2 * half]) | static_cast<uint64_t>(block.word[2 * half + 1]) << 32;
  return static_cast<uint64_t>(static_cast<Wide>(bits) * bound >> 64);
}

class RandomTokens {
 public:
  explicit RandomTokens(const Options&) {}

  SourceInfo describe(const galley_source_call& call) {
    learns_ = call.learns;
    classes_ = static_cast<uint64_t>(call.classes);
    SourceInfo out;
    out.summary = "uniform random tokens";
    out.flags = GALLEY_SOURCE_LABELS | GALLEY_SOURCE_LEARNED | GALLEY_SOURCE_ENDLESS;
    return out;
  }

  galley_source_contents open(const galley_source_contents& run) {
    vocabulary_ = static_cast<uint64_t>(run.vocabulary);
    seed_ = static_cast<int64_t>(run.seed);
    return fresh<galley_source_contents>();
  }

  // Token s is half s % 2 of block s / 2.
  void read(galley_source_row& row) const {
    const int64_t random[2] = {seed_, row.item};
    const Drawn drawn = {galley_random_key(random, galley_name_hash("data.random")), row.row};
    row.length = row.room;
    for (int64_t s = 0; s <= row.length; s += 2) {
      const galley_philox_block block = drawn.block(0, s / 2);
      for (int64_t half = 0; half < 2 && s + half <= row.length; ++half) {
        const auto token = static_cast<int32_t>(below(block, static_cast<size_t>(half), vocabulary_));
        if (s + half < row.length) row.tokens[s + half] = token;
        if (s + half > 0) row.labels[s + half - 1] = token;
      }
    }
    const uint64_t classes = classes_ > 0 ? classes_ : vocabulary_;
    switch (learns_) {
      case GALLEY_LEARNS_MASKED_TOKENS: drawn.numbers(7, row.learned, row.n_learned, vocabulary_); break;
      case GALLEY_LEARNS_TOKEN_LABELS: drawn.numbers(8, row.learned, row.n_learned, classes); break;
      case GALLEY_LEARNS_ROW_LABELS: drawn.numbers(11, row.learned, row.n_learned, row.n_learned > 1 ? 2 : classes); break;
      case GALLEY_LEARNS_ROW_VALUES:
        for (int64_t i = 0; i < row.n_learned; ++i) static_cast<float*>(row.learned)[i] = galley_uniform(drawn.block(12, i).word[0]);
        break;
      case GALLEY_LEARNS_TARGET:
        if (row.target) drawn.numbers(13, row.target, row.n_learned, vocabulary_);
        drawn.numbers(14, row.learned, row.n_learned, vocabulary_);
        break;
      default: break;
    }
  }

 private:
  /// What is drawn for a row: each kind of numbers has blocks of its own.
  struct Drawn {
    uint64_t key;
    int64_t row;
    galley_philox_block block(int64_t kind, int64_t i) const { return galley_random_block(key, row, kind, i); }
    void numbers(int64_t kind, void* to, int64_t n, uint64_t bound) const {
      for (int64_t i = 0; i < n; ++i) static_cast<int32_t*>(to)[i] = static_cast<int32_t>(below(block(kind, i), 0, bound));
    }
  };

  uint32_t learns_ = GALLEY_LEARNS_NEXT_TOKENS;
  uint64_t classes_ = 0, vocabulary_ = 1;
  int64_t seed_ = 0;
};

const bool added = add(source<RandomTokens>("random"));

}  // namespace

GALLEY_PLUGIN("random", "1.0.0");
