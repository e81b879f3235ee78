// A thread packs a group of 32 numbers, or makes eight.
#include "galley/cuda/codec.hpp"
#include "six_bit.hpp"

namespace {

using namespace galley::cuda;
using six_bit::Numbers;

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) pack_groups(const float* x, Numbers to, int64_t groups) {
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (group < groups) to.pack(group, x + group * six_bit::kGroup);
}
void pack(const Node& node, void*, galley_queue* queue) {
  const int64_t groups = count(node.in(0)) / six_bit::kGroup;
  launch(pack_groups, {blocks_of(groups, kThreads), kThreads}, queue, node.read<float>(0), Numbers(galley::sdk::packed_input(node)),
         groups);
}
bool in_f32(const Node& node) { return node.in(0).dtype == GALLEY_F32; }

__global__ void __launch_bounds__(kThreads) make_numbers(Numbers from, void* to, uint32_t dtype, int64_t n) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack, group = at / six_bit::kGroup;
  if (at >= n) return;
  const int first = static_cast<int>(at % six_bit::kGroup);
  const float scale = six_bit::scale_of(from.scale[group]);
  float x[kPack];
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = six_bit::value(from.code(group, first + i)) * scale;
  store_numbers(to, dtype, at, kPack, x);
}
void unpack(const Numbers& from, int64_t n, uint32_t dtype, void* to, galley_queue* queue) {
  launch(make_numbers, {blocks_of(n, kThreads * kPack), kThreads}, queue, from, to, dtype, n);
}

const bool added = add_codec<Numbers, unpack>(six_bit::kName) && add(kernel<pack, in_f32>("six-bit.pack.cuda", "six-bit.pack")) &&
                   add(unpack_kernel<Numbers, unpack>("six-bit.unpack.cuda", "six-bit.unpack"));

}  // namespace

GALLEY_PLUGIN("six-bit", "1.0.0");
