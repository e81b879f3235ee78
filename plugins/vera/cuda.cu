// The ops of ops.cpp on CUDA, once a run. vera_random: the generator makes 624 numbers from 624 others, of which each depends on one that
// is 227 before it: a block of 256 threads makes them 208 at a time, so that none waits for another of its own.
#include "galley/cuda/kernel.hpp"
#include "random.hpp"

namespace {

using namespace galley::cuda;

constexpr int kThreads = 256, kState = 624, kAhead = 397, kTurn = 208;

__global__ void __launch_bounds__(kThreads) draw(uint32_t key, int64_t before, float bound, float* to, int64_t count) {
  GALLEY_SHARED(uint32_t, state, kState);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    state[0] = key;
    for (int i = 1; i < kState; ++i) state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + static_cast<uint32_t>(i);
  }
  __syncthreads();
  for (int64_t first = 0; first < before + count; first += kState) {
    for (int turn = 0; turn < kState; turn += kTurn) {
      const int i = turn + thread;
      uint32_t made = 0;
      if (thread < kTurn) {
        const uint32_t next = i + 1 < kState ? state[i + 1] : state[0];
        const uint32_t y = (state[i] & 0x80000000u) | (next & 0x7FFFFFFFu);
        made = state[(i + kAhead) % kState] ^ (y >> 1) ^ (y & 1u ? 0x9908B0DFu : 0u);
      }
      __syncthreads();
      if (thread < kTurn) state[i] = made;
      __syncthreads();
    }
    for (int i = thread; i < kState; i += kThreads) {
      const int64_t at = first + i - before;
      if (at < 0 || at >= count) continue;
      uint32_t y = state[i];
      y ^= y >> 11;
      y ^= (y << 7) & 0x9D2C5680u;
      y ^= (y << 15) & 0xEFC60000u;
      y ^= y >> 18;
      to[at] = static_cast<float>(galley::vera::uniform(y, bound));
    }
  }
}

void run_random(const Node& node, void*, galley_queue* queue) {
  const galley::vera::Draws draws(node);
  launch(draw, {1, kThreads}, queue, draws.key, draws.before, draws.bound, node.write<float>(0), count(node.out(0)));
}

__global__ void __launch_bounds__(kThreads) take(const float* from, float* to, int64_t columns, int64_t all, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < count) to[at] = from[at / columns * all + at % columns];
}

void run_slice(const Node& node, void*, galley_queue* queue) {
  const int64_t n = count(node.out(0));
  launch(take, {blocks_of(n, kThreads), kThreads}, queue, node.read<float>(0), node.write<float>(0), columns(node.out(0)),
         columns(node.in(0)), n);
}

const bool added = add(kernel<run_random>("vera_random.cuda", "vera_random")) && add(kernel<run_slice>("vera_slice.cuda", "vera_slice"));

}  // namespace

GALLEY_PLUGIN("vera", "1.0.0");
