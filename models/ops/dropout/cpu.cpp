// Dropout: one pass over x and y. The draws are made 256 columns at a time in a loop over Philox blocks that vectorises (ten rounds of two 32 × 32 products for
// four numbers), then applied.
#include <cmath>

#include "cpu/vector.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

constexpr int64_t blocks_at_once = 64;

// Words of the blocks first … first + 63, word k of block j at words[k][j].
void draw(uint64_t key, int64_t row, int64_t position, int64_t first, uint32_t (&words)[4][blocks_at_once]) {
  for (int64_t j = 0; j < blocks_at_once; ++j) {
    const galley_philox_block b = galley_random_block(key, row, position, first + j);
    for (int k = 0; k < 4; ++k) words[k][j] = b.word[k];
  }
}

void dropout(const Node& n, void*) {
  const float* x = n.read<float>(0);
  const int64_t* random = n.read<int64_t>(1);
  float* y = n.write<float>(0);
  const double p = n.training() ? n.f("p", 0.5) : 0;
  const float factor = p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f;
  // galley_uniform(word) ≥ p, in integers.
  const uint32_t threshold = static_cast<uint32_t>(std::ceil(p * 16777216.0));
  const int64_t R = rows(n.in(0)), C = columns(n.in(0)), S = n.view()->length, first_row = n.view()->first_row;
  const uint64_t key = galley_random_key(random, n.stream());
  const int64_t first_sequence = random[2];
  cpu::by_access(n.accumulates(0), [&](auto add) {
    cpu::over_rows(R, C, [=](int64_t r) {
      const int64_t row = first_row + r, sequence = first_sequence + (S ? row / S : 0), position = S ? row % S : row;
      const float* from = x + r * C;
      float* to = y + r * C;
      if (threshold == 0) {
        GALLEY_INDEPENDENT
        for (int64_t c = 0; c < C; ++c) cpu::put(add, to[c], from[c]);
        return;
      }
      for (int64_t c = 0; c < C; c += 4 * blocks_at_once) {
        uint32_t words[4][blocks_at_once];
        float keep[4 * blocks_at_once];
        draw(key, sequence, position, c / 4, words);
        for (int64_t j = 0; j < blocks_at_once; ++j)
          for (int k = 0; k < 4; ++k) keep[4 * j + k] = words[k][j] >> 8 >= threshold ? factor : 0.0f;
        const int64_t count = C - c < 4 * blocks_at_once ? C - c : 4 * blocks_at_once;
        // A choice, not a product: what is dropped is 0 even where x is not finite.
        GALLEY_INDEPENDENT
        for (int64_t i = 0; i < count; ++i) cpu::put(add, to[c + i], keep[i] > 0.0f ? from[c + i] * keep[i] : 0.0f);
      }
    });
  });
}

const bool added = add(kernel<dropout, cpu::all_f32>("dropout.cpu", "dropout"));

}  // namespace
