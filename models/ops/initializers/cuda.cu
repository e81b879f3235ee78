// Initializers run once. fill: 16 bytes a thread, at the bandwidth of the output. random_normal and random_uniform: eight elements a
// thread, from two blocks of Philox, in F64 and rounded to F32 at the end: the CPU's draws, and but for the last place of F64 its
// logarithms, sines and cosines.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "galley/cpp/half.hpp"
#include "galley/cuda/elementwise.hpp"
#include "ops/initializers/draws.hpp"

namespace galley::cuda::initializers_op {
namespace {

// ---- fill ---------------------------------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kMapThreads) fill_with(T* y, int64_t count, T value) {
  constexpr int taken = 16 / static_cast<int>(sizeof(T));
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * taken;
  if (at + taken <= count && reinterpret_cast<uintptr_t>(y) % 16 == 0) {
    Vector<T, taken> v;
#pragma unroll
    for (int i = 0; i < taken; ++i) v.at[i] = value;
    store_vector<T, taken>(y + at, v);
  } else {
    for (int64_t i = at; i < count && i < at + taken; ++i) y[i] = value;
  }
}
/// As numbers of type T, which move as Bits.
template <class T, class Bits>
void fill_as(const Node& n, galley_queue* queue) {
  static_assert(sizeof(T) == sizeof(Bits), "the same bytes");
  T value;
  if constexpr (std::is_arithmetic_v<T>) value = static_cast<T>(n.f("value", 0));
  else sdk::from_float(static_cast<float>(n.f("value", 0)), value);
  Bits bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int64_t size = count(n.out(0));
  launch(fill_with<Bits>, {size / (kMapThreads * 16 / static_cast<int64_t>(sizeof(T))) + 1, kMapThreads}, queue, n.write<Bits>(0), size,
         bits);
}
void fill(const Node& n, void*, galley_queue* queue) {
  switch (n.out(0).dtype) {
    case GALLEY_F64: return fill_as<double, uint64_t>(n, queue);
    case GALLEY_F32: return fill_as<float, uint32_t>(n, queue);
    case GALLEY_BF16: return fill_as<sdk::Bf16, uint16_t>(n, queue);
    case GALLEY_F16: return fill_as<sdk::F16, uint16_t>(n, queue);
    case GALLEY_I64: return fill_as<int64_t, uint64_t>(n, queue);
    case GALLEY_I32: return fill_as<int32_t, uint32_t>(n, queue);
    case GALLEY_I8: return fill_as<int8_t, uint8_t>(n, queue);
    default: return fill_as<uint8_t, uint8_t>(n, queue);
  }
}
bool fill_supports(const Node& n) {
  constexpr uint32_t known[] = {GALLEY_F64, GALLEY_F32, GALLEY_BF16, GALLEY_F16, GALLEY_I64, GALLEY_I32, GALLEY_I8, GALLEY_U8};
  return std::find(std::begin(known), std::end(known), n.out(0).dtype) != std::end(known);
}

// ---- values -------------------------------------------------------------------------------------------------------------------------

/// As many numbers as go with the arguments of one launch.
struct Listed {
  static constexpr int kMost = 512;
  float at[kMost];
};

__global__ void __launch_bounds__(kMapThreads) put_values(float* y, Listed values, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kMapThreads) y[i] = values.at[i];
}

void values(const Node& n, void*, galley_queue* queue) {
  const auto* from = static_cast<const double*>(galley_attr_find(n.view(), "values")->data);
  const int64_t size = count(n.out(0));
  for (int64_t first = 0; first < size; first += Listed::kMost) {
    const auto some = static_cast<int>(std::min<int64_t>(size - first, Listed::kMost));
    Listed values = {};
    for (int i = 0; i < some; ++i) values.at[i] = static_cast<float>(from[first + i]);
    launch(put_values, {1, kMapThreads}, queue, n.write<float>(0) + first, values, some);
  }
}

// ---- Random numbers -----------------------------------------------------------------------------------------------------------------

/// The point of the unit circle at an angle in turns. Without a product by π there is nothing to reduce, which would take local memory.
__device__ void at_turns(double turns, double* sine, double* cosine) {
#if GALLEY_CUDA_EMULATED
  *sine = std::sin(6.283185307179586477 * turns);
  *cosine = std::cos(6.283185307179586477 * turns);
#else
  sincospi(2 * turns, sine, cosine);
#endif
}

/// Draws::normal of four elements.
struct Normal {
  double mean, deviation;
  __device__ void operator()(const galley_philox_block& b, float* y) const {
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
      const double radius = sqrt(-2 * log((b.word[pair] + 1.0) / 4294967296.0));
      double sine, cosine;
      at_turns(b.word[pair + 1] / 4294967296.0, &sine, &cosine);
      y[pair] = static_cast<float>(mean + deviation * (radius * cosine));
      y[pair + 1] = static_cast<float>(mean + deviation * (radius * sine));
    }
  }
};
/// Draws::uniform of four elements.
struct Uniform {
  double low, extent;
  __device__ void operator()(const galley_philox_block& b, float* y) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) y[i] = static_cast<float>(low + extent * static_cast<double>(galley_uniform(b.word[i])));
  }
};

template <class Draw>
__global__ void __launch_bounds__(kMapThreads) draw_numbers(Writer y, int64_t count, uint64_t key, Draw draw) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * kPack;
  if (at >= count) return;
  float pack[kPack];
#pragma unroll
  for (int half = 0; half < kPack; half += 4) draw(galley_philox(key, static_cast<uint64_t>((at + half) / 4), 0), pack + half);
  y.store(at, pack_at(at, count), pack);
}
template <class Draw>
void random_numbers(const Node& n, galley_queue* queue, Draw draw) {
  const int64_t size = count(n.out(0));
  launch(draw_numbers<Draw>, map_grid(size), queue, Writer(n, 0), size, galley::models::Draws(n).key(), draw);
}
void random_normal(const Node& n, void*, galley_queue* queue) { random_numbers(n, queue, Normal{n.f("mean", 0), n.f("std", 1)}); }
void random_uniform(const Node& n, void*, galley_queue* queue) {
  random_numbers(n, queue, Uniform{n.f("low", 0), n.f("high", 1) - n.f("low", 0)});
}
bool in_f32(const Node& n) { return n.out(0).dtype == GALLEY_F32; }

const bool added = add(kernel<fill, fill_supports>("fill.cuda", "fill")) && add(kernel<values, in_f32>("values.cuda", "values")) &&
                   add(kernel<random_normal, in_f32>("random_normal.cuda", "random_normal")) &&
                   add(kernel<random_uniform, in_f32>("random_uniform.cuda", "random_uniform"));

}  // namespace
}  // namespace galley::cuda::initializers_op
