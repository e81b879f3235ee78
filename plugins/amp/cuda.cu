// amp's kernels: the scale, by one thread; and BF16 storage at the bandwidth of its operands (6 bytes a number), with random bits or
// without: Philox takes less time than the memory. The bits are those of cpu.cpp, from the same functions of scale.hpp and storage.hpp.
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/quad.hpp"
#include "scale.hpp"
#include "storage.hpp"

namespace galley::amp {
namespace {

using namespace cuda;

constexpr int kThreads = 256, kTurns = 4;

// ---- The scale ------------------------------------------------------------------------------------------------------------------------

__global__ void change_scale(ScaleRule<float> rule, ScaleValues<float> values) { update(rule, values); }

void update_scale_step(const Node& node, void*, galley_queue* queue) {
  launch(change_scale, {1, 1}, queue, ScaleRule<float>(node), ScaleValues<float>(node));
}

// ---- To BF16 --------------------------------------------------------------------------------------------------------------------------

/// The random bits of the elements first … first + 7 of the whole tensor: half_of() for each of them. Where they do not begin a block of
/// Philox they are in two, which are shifted together: an array that is indexed by a variable would lie in memory.
__device__ void draw(uint64_t key, int64_t first, uint32_t (&random)[kPack]) {
  static_assert(draws == kPack, "a block of Philox is what a thread rounds");
  const auto block = static_cast<uint64_t>(first / draws);
  const int offset = static_cast<int>(first % draws);
  uint32_t words[8] = {};
  galley_philox_block drawn = galley_philox(key, block, 0);
#pragma unroll
  for (int k = 0; k < 4; ++k) words[k] = drawn.word[k];
  if (offset) {
    drawn = galley_philox(key, block + 1, 0);
#pragma unroll
    for (int k = 0; k < 4; ++k) words[4 + k] = drawn.word[k];
#pragma unroll
    for (int k = 0; k < 6; ++k) words[k] = offset & 4 ? words[k + 2] : words[k];
#pragma unroll
    for (int k = 0; k < 5; ++k) words[k] = offset & 2 ? words[k + 1] : words[k];
#pragma unroll
    for (int k = 0; k < 4; ++k) words[k] = offset & 1 ? words[k] >> 16 | words[k + 1] << 16 : words[k];
  }
#pragma unroll
  for (int k = 0; k < kPack; ++k) random[k] = words[k / 2] >> 16 * (k % 2) & 0xFFFFu;
}

/// y = x as BF16. `random`: stochastically, with the bits of the numbers from `before` on; null: to the nearest.
__global__ void __launch_bounds__(kThreads)
    pack_numbers(const float* x, const int64_t* random, uint64_t stream, int64_t before, int64_t count, uint16_t* y) {
  const uint64_t key = random ? galley_random_key(random, stream) : 0;
  int64_t at = (static_cast<int64_t>(blockIdx.x) * kTurns * kThreads + threadIdx.x) * kPack;
  for (int turn = 0; turn < kTurns && at < count; ++turn, at += kThreads * kPack) {
    const int n = pack_at(at, count);
    float numbers[kPack];
    load_numbers(x + at, n, numbers);
    Vector<uint16_t, kPack> packed;
    if (random) {
      uint32_t drawn[kPack];
      draw(key, before + at, drawn);
#pragma unroll
      for (int i = 0; i < kPack; ++i) packed.at[i] = cut(numbers[i], drawn[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i) packed.at[i] = nearest(numbers[i]);
    }
    if (n == kPack && reinterpret_cast<uintptr_t>(y + at) % sizeof packed == 0) {
      store_vector<uint16_t, kPack>(y + at, packed);
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        if (i < n) y[at + i] = packed.at[i];
    }
  }
}

int64_t blocks_for(int64_t count, int numbers) { return (count + kTurns * kThreads * numbers - 1) / (kTurns * kThreads * numbers); }

void pack(const Node& node, void*, galley_queue* queue) {
  const int64_t n = count(node.in(0));
  if (n == 0) return;
  launch(pack_numbers, {blocks_for(n, kPack), kThreads}, queue, node.read<float>(0), node.read<int64_t>(1), node.stream(),
         sdk::first_number(node, 0), n, node.write<uint16_t>(0));
}

// ---- From BF16 ------------------------------------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads) unpack_numbers(const Bf16* x, void* y, uint32_t dtype, int64_t count) {
  int64_t at = (static_cast<int64_t>(blockIdx.x) * kTurns * kThreads + threadIdx.x) * kQuad;
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn, at += kThreads * kQuad) {
    if (at >= count) return;
    float numbers[kQuad];
    load_quad(x + at, quad_at(at, count), numbers);
    store_quad(y, dtype, at, quad_at(at, count), numbers);
  }
}

void unpack(const Node& node, void*, galley_queue* queue) {
  const int64_t n = count(node.in(0));
  if (n == 0) return;
  launch(unpack_numbers, {blocks_for(n, kQuad), kThreads}, queue, node.read<Bf16>(0), node.write<void>(0), node.out(0).dtype, n);
}

bool any(const Node&) { return true; }

const bool registered = add(kernel<update_scale_step, any>("update_scale.cuda", "update_scale")) &&
                        add(kernel<pack, any>("bf16_pack.cuda", "bf16_pack")) &&
                        add(kernel<unpack, any>("bf16_unpack.cuda", "bf16_unpack"));

}  // namespace
}  // namespace galley::amp

GALLEY_PLUGIN("amp", "1.0.0");
