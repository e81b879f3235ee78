#include "host/sources/random_tokens.hpp"

#include <algorithm>
#include <bit>

#include "host/base/random.hpp"
#include "host/sources/layout.hpp"
#include "host/sources/shape.hpp"
#include "host/tokens/spec.hpp"

namespace galley {
namespace {

class RandomSource final : public Source {
 public:
  RandomSource(const Windows& windows, const Recipe& recipe, int64_t vocabulary)
      : windows_(windows),
        seed_(recipe.seed),
        vocabulary_(static_cast<uint64_t>(vocabulary)),
        classes_(recipe.learning.classes > 0 ? static_cast<uint64_t>(recipe.learning.classes) : vocabulary_) {}

  Status fill(int64_t window, WindowBuffer& buffer) const override {
    buffer.window = window;
    const int64_t tokens = buffer.layout.rows * buffer.layout.length;
    buffer.micro_batches = windows_.tokens > 0 ? std::clamp<int64_t>((windows_.tokens + tokens / 2) / tokens, 1, windows_.micro_batches)
                                               : windows_.micro_batches;
    const int64_t random[2] = {static_cast<int64_t>(seed_), window};
    const uint64_t key = galley_random_key(random, galley_name_hash("data.random"));
    for (int64_t r = 0; r < buffer.rows(); ++r) draw_row(key, r, buffer.row(r));
    buffer.valid_tokens = buffer.count_valid();
    return ok();
  }

 private:
  // Token s is half s % 2 of block s / 2.
  void draw_row(uint64_t key, int64_t r, const BatchRow& row) const {
    const size_t length = row.length();
    for (size_t s = 0; s <= length; s += 2) {
      const galley_philox_block block = galley_random_block(key, r, 0, static_cast<int64_t>(s / 2));
      for (size_t half = 0; half < 2 && s + half <= length; ++half) {
        const auto token = static_cast<int32_t>(below(bits64(block, half), vocabulary_));
        if (s + half < length) row.tokens()[s + half] = token;
        if (s + half > 0) row.next()[s + half - 1] = token;
      }
    }
    for (size_t s = 0; s < length; ++s) {
      row.positions()[s] = static_cast<int32_t>(s);
      row.first_key()[s] = 0;
    }
    complete_row(row, 0, length, nullptr, {});
    draw_numbers(key, r, row, Fill::MaskedTokens, vocabulary_);
    draw_numbers(key, r, row, Fill::TokenLabels, classes_);
    draw_numbers(key, r, row, Fill::RowLabels, row[Fill::RowLabels].size() > 1 ? 2 : classes_);
    draw_values(key, r, row);
    draw_numbers(key, r, row, Fill::TargetTokens, vocabulary_);
    draw_numbers(key, r, row, Fill::TargetLabels, vocabulary_);
  }
  static void draw_numbers(uint64_t key, int64_t r, const BatchRow& row, Fill fill, uint64_t bound) {
    const std::span<int32_t> to = row[fill];
    for (size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<int32_t>(
          below(bits64(galley_random_block(key, r, 1 + static_cast<int64_t>(fill), static_cast<int64_t>(i)), 0), bound));
  }

  /// Draws values that are uniform in [0, 1).
  static void draw_values(uint64_t key, int64_t r, const BatchRow& row) {
    for (int64_t i = 0; int32_t & value : row[Fill::RowValues])
      value = std::bit_cast<int32_t>(
          static_cast<float>(galley_uniform(galley_random_block(key, r, 1 + static_cast<int64_t>(Fill::RowValues), i++).word[0])));
  }

  Windows windows_;
  uint64_t seed_, vocabulary_, classes_;
};

}  // namespace

Result<DataInfo> describe_random(const DataSpec& spec, const Recipe& recipe) {
  TRY_STATUS(options_of(spec).only(std::initializer_list<const char*>{}));
  DataInfo info;
  info.layout = TRY(recipe_layout(spec, recipe));
  info.one_document = true;
  info.summary = "uniform random tokens";
  return info;
}

Result<std::unique_ptr<Source>> open_random(const DataSpec& spec, const Recipe& recipe, int64_t vocabulary, const Windows& windows) {
  TRY(describe_random(spec, recipe));
  return std::unique_ptr<Source>(std::make_unique<RandomSource>(windows, recipe, vocabulary));
}

}  // namespace galley
