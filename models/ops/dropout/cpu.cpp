// Dropout: one pass over x and y, 256 columns at a time: draws, then choices. Ten rounds of Philox for four elements are its cost, about
// half a nanosecond an element.
#include <cmath>

#include "cpu/number.hpp"
#include "galley/cpp/philox.hpp"
#include "ops/check.hpp"

namespace galley::cpu::dropout_op {
namespace {

using namespace sdk;

void dropout(const Node& n, void*) {
  const cpu::Input x(n, 0);
  const int64_t* random = n.read<int64_t>(1);
  const cpu::Output y(n, 0);
  const double p = n.training() ? n.f("p", 0.5) : 0;
  const float factor = p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f;
  // galley_uniform(word) ≥ p, in integers.
  const uint32_t threshold = static_cast<uint32_t>(std::ceil(p * 16777216.0));
  const int64_t R = rows(n.in(0)), C = columns(n.in(0)), S = galley::models::row_length(n), first_row = n.view()->first_row;
  const uint64_t key = galley_random_key(random, n.stream());
  const int64_t first_sequence = random[2];
  if (threshold == 0) return cpu::map(n, [](float value) { return value; });
  cpu::by_access(y.adds(), [&](auto add) {
    cpu::over_rows(R, C, [=](int64_t r) {
      const int64_t row = first_row + r, sequence = first_sequence + (S ? row / S : 0), position = S ? row % S : row;
      constexpr int64_t at_once = 4 * philox_blocks;
      static_assert(at_once <= cpu::run_length);
      cpu::Buffer buffers[2];
      for (int64_t c = 0; c < C; c += at_once) {
        uint32_t words[at_once];
        philox_many(key, static_cast<uint64_t>(c / 4),
                    static_cast<uint64_t>(sequence) << 32 | static_cast<uint64_t>(static_cast<uint32_t>(position)), words);
        const int64_t count = C - c < at_once ? C - c : at_once;
        const float* from = x.read(r * C + c, count, buffers[0]);
        float* const to = y.open(r * C + c, count, buffers[1]);
        GALLEY_INDEPENDENT
        for (int64_t i = 0; i < count; ++i) {
          const float kept = from[i] * factor;  // before the choice: a load that depends on it would not vectorise
          cpu::put(add, to[i], words[i] >> 8 >= threshold ? kept : 0.0f);
        }
        y.close(r * C + c, count, to);
      }
    });
  });
}

const bool added = add(kernel<dropout, cpu::all_numbers>("dropout.cpu", "dropout"));

}  // namespace
}  // namespace galley::cpu::dropout_op
