// four_bit_pack, four_bit_unpack and the codec of four-bit on CUDA, with the bytes of the CPU.
//
//   codes           a warp takes a block of numbers: it reads them for absmax, and again, from the cache, for the codes
//   offset          one warp, whose lanes are the chains of the sum
//   nested absmax   a block of threads takes 256 absmax
//   numbers         in one pass, at the bandwidth of what is written
#include <algorithm>

#include "four_bit.hpp"
#include "galley/cuda/codec.hpp"
#include "galley/cuda/reduce.hpp"
#include "state_number.hpp"

namespace {

using namespace galley::cuda;
namespace dynamic8 = galley::sdk::dynamic8;
namespace four_bit = galley::four_bit;

constexpr int kThreads = 256, kWarps = kThreads / kWarpSize;

struct Packing {
  const float* x;
  uint8_t* codes;
  float* absmax;
  int64_t n, block, blocks;
};

template <four_bit::Type type>
__global__ void __launch_bounds__(kThreads) make_codes(Packing p) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t of = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (of >= p.blocks) return;
  const int64_t begin = of * p.block, end = begin + p.block < p.n ? begin + p.block : p.n;
  const bool whole = end - begin == p.block;
  unsigned magnitude = 0;
  for (int64_t i = begin + lane; i < end; i += kWarpSize) magnitude = Max()(magnitude, dynamic8::magnitude_bits(p.x[i]));
  const float most = __uint_as_float(warp_max(magnitude));
  if (lane == 0) p.absmax[of] = four_bit::kept_absmax(most, whole);
  for (int64_t i = begin + 2 * lane; i < end; i += 2 * kWarpSize) {
    const float first = four_bit::share(p.x[i], most, whole), second = i + 1 < end ? four_bit::share(p.x[i + 1], most, whole) : 0.0f;
    p.codes[i / 2] = static_cast<uint8_t>(four_bit::code(first, type) << 4 | four_bit::code(second, type));
  }
}

__global__ void __launch_bounds__(kWarpSize) make_offset(const float* absmax, int64_t blocks, float* out) {
  GALLEY_SHARED(float, sums, four_bit::offset::kChains);
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t chains = four_bit::offset::columns(blocks) * four_bit::offset::kRows;
  sums[lane] = lane < chains ? four_bit::offset::chain(absmax + lane, chains, four_bit::offset::length(blocks)) : 0.0f;
  __syncthreads();
  if (lane == 0) *out = four_bit::offset::mean(absmax, blocks, sums);
}
static_assert(four_bit::offset::kChains == kWarpSize && four_bit::kNested == kThreads);

__global__ void __launch_bounds__(kThreads)
    make_nested(const float* absmax, int64_t blocks, const float* offset, uint8_t* codes, float* largest) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const float d = i < blocks ? absmax[i] - *offset : 0.0f;
  const float most = block_reduce<kThreads>(fabsf(d), 0.0f, Max());
  if (threadIdx.x == 0) largest[blockIdx.x] = most;
  if (i < blocks) codes[i] = static_cast<uint8_t>(four_bit::nested_code(d, most));
}

four_bit::Options options_of(const Node& node) { return {node.view()->attrs, node.view()->n_attrs}; }
bool in_f32(const Node& node) { return node.in(0).dtype == GALLEY_F32; }

/// With double quantization: room for absmax before it is coded.
int64_t pack_workspace(const Node& node, const galley_target&) {
  const four_bit::Options options = options_of(node);
  return options.doubled ? options.blocks(count(node.in(0))) * static_cast<int64_t>(sizeof(float)) : 0;
}
void pack(const Node& node, void* workspace, galley_queue* queue) {
  const four_bit::Options options = options_of(node);
  const int64_t n = count(node.in(0)), blocks = options.blocks(n);
  float* const absmax = options.doubled ? static_cast<float*>(workspace) : node.write<float>(1);
  const Packing packing = {node.read<float>(0), node.write<uint8_t>(0), absmax, n, options.block, blocks};
  const Grid warps = {blocks_of(blocks, kWarps), kThreads};
  launch(options.type == four_bit::kFp4 ? make_codes<four_bit::kFp4> : make_codes<four_bit::kNf4>, warps, queue, packing);
  if (!options.doubled) return;
  float *const nested = node.write<float>(2), *const offset = node.write<float>(3);
  launch(make_offset, {1, kWarpSize}, queue, absmax, blocks, offset);
  launch(make_nested, {options.nested(n), kThreads}, queue, absmax, blocks, offset, node.write<uint8_t>(1), nested);
}
constexpr int kPacks = 4;

/// Makes n numbers of `dtype`, a thread `packs` times eight of them. The code book of four bits lies in shared memory, where lanes that
/// look up other entries meet in no bank.
template <int packs>
__global__ void __launch_bounds__(kThreads) make_numbers(four_bit::Coded from, int block_bits, void* to, uint32_t dtype, int64_t n) {
  GALLEY_SHARED(float, entries, 16);
  GALLEY_SHARED(float, book, 256);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 16) entries[thread] = four_bit::value(thread, from.type);
  if (from.doubled) book[thread] = dynamic8::value(thread, true);
  __syncthreads();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * packs) + thread;
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    const int64_t at = (first + k * kThreads) * kPack;
    if (at >= n) return;
    const int count = pack_at(at, n);
    const float absmax = from.absmax_of(at >> block_bits, book);
    const uint8_t* const codes = from.codes + at / 2;
    Vector<uint8_t, 4> bytes = {};
    if (count == kPack && reinterpret_cast<uintptr_t>(codes) % 4 == 0) {
      bytes = load_vector<uint8_t, 4>(codes);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) bytes.at[i] = 2 * i < count ? codes[i] : uint8_t{0};
    }
    float x[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = entries[i % 2 ? bytes.at[i / 2] & 15 : bytes.at[i / 2] >> 4] * absmax;
    store_numbers(to, dtype, at, count, x);
  }
}
void unpack(const four_bit::Coded& from, int64_t n, uint32_t dtype, void* to, galley_queue* queue) {
  int bits = 0;
  while ((int64_t{1} << bits) < from.block) ++bits;
  launch(make_numbers<kPacks>, {blocks_of(n, kThreads * kPacks * kPack), kThreads}, queue, from, bits, to, dtype, n);
}

// What is saved beside codes, for others to read: constants come with the launch.
constexpr int kMostValues = 256, kMostText = 512;
struct Values {
  float value[kMostValues];
};
struct Text {
  char byte[kMostText];
};

__global__ void __launch_bounds__(kMostValues) write_values(Values values, int n, float* to) {
  if (static_cast<int>(threadIdx.x) < n) to[threadIdx.x] = values.value[threadIdx.x];
}
__global__ void __launch_bounds__(kMostText) write_text(Text text, int n, const float* offset, uint8_t* to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < n) to[i] = static_cast<uint8_t>(text.byte[i]);
  if (i > 0 || !offset) return;
  galley::four_bit_folder::write_number(*offset, to + n);
  to[n + galley::four_bit_folder::kNumberBytes] = '}';
}

bool few_values(const Node& node) { return galley_attr_find(node.view(), "values")->count <= kMostValues; }
bool short_text(const Node& node) { return galley_attr_find(node.view(), "text")->count <= kMostText; }
void table(const Node& node, void*, galley_queue* queue) {
  const galley_attr* given = galley_attr_find(node.view(), "values");
  Values values = {};
  std::copy_n(static_cast<const double*>(given->data), given->count, values.value);
  launch(write_values, {1, kMostValues}, queue, values, static_cast<int>(given->count), node.write<float>(0));
}
void state(const Node& node, void*, galley_queue* queue) {
  const galley_attr* given = galley_attr_find(node.view(), "text");
  Text text = {};
  std::copy_n(static_cast<const char*>(given->data), given->count, text.byte);
  launch(write_text, {1, kMostText}, queue, text, static_cast<int>(given->count), node.has(0) ? node.read<float>(0) : nullptr,
         node.write<uint8_t>(0));
}

const bool registered = add(kernel<table, few_values>("four_bit_table.cuda", "four_bit_table")) &&
                        add(kernel<state, short_text>("four_bit_state.cuda", "four_bit_state")) &&
                        add(kernel<pack, in_f32, pack_workspace>("four_bit_pack.cuda", "four_bit_pack")) &&
                        add_codec<four_bit::Coded, unpack>(four_bit::kName) &&
                        add(unpack_kernel<four_bit::Coded, unpack>("four_bit_unpack.cuda", "four_bit_unpack"));

}  // namespace

GALLEY_PLUGIN("quantize-nf4", "1.0.0");
