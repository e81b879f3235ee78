// Integer products on the processor: a task is 64 rows of y by 64 columns. Sums with four rows of W are made at once, so that what is read
// of x serves them all, of pairs of codes that were widened to 16 bit (vpmaddwd). Exact, so any order has the same bits.
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>

#include "cpu/number.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

constexpr int64_t kBlock = 64;

#if defined(__AVX2__)
template <int n>
int32_t all_of(const int32_t (&lanes)[n]) {
  int32_t sum = 0;
  for (const int32_t lane : lanes) sum += lane;
  return sum;
}
#endif

#if defined(__AVX512BW__)
struct Sum {
  static constexpr int64_t codes = 32;
  using Codes = __m512i;
  static Codes load(const int8_t* p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  void add(const Codes& a, const Codes& b) { v = _mm512_add_epi32(v, _mm512_madd_epi16(a, b)); }
  int32_t total() const {
    alignas(64) int32_t lanes[16];
    _mm512_store_si512(lanes, v);
    return all_of(lanes);
  }
  __m512i v = _mm512_setzero_si512();
};
#elif defined(__AVX2__)
struct Sum {
  static constexpr int64_t codes = 16;
  using Codes = __m256i;
  static Codes load(const int8_t* p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  void add(const Codes& a, const Codes& b) { v = _mm256_add_epi32(v, _mm256_madd_epi16(a, b)); }
  int32_t total() const {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), v);
    return all_of(lanes);
  }
  __m256i v = _mm256_setzero_si256();
};
#else
struct Sum {
  static constexpr int64_t codes = 1;
  using Codes = int32_t;
  static Codes load(const int8_t* p) { return *p; }
  void add(Codes a, Codes b) { v += a * b; }
  int32_t total() const { return v; }
  int32_t v = 0;
};
#endif

template <int columns_at_once>
void sums_of(const int8_t* x, const int8_t* w, int64_t K, int32_t* to) {
  Sum wide[columns_at_once];
  int64_t k = 0;
  for (; k + Sum::codes <= K; k += Sum::codes) {
    const Sum::Codes codes = Sum::load(x + k);
    for (int c = 0; c < columns_at_once; ++c) wide[c].add(codes, Sum::load(w + c * K + k));
  }
  int32_t sums[columns_at_once];
  for (int c = 0; c < columns_at_once; ++c) sums[c] = wide[c].total();
  for (; k < K; ++k)
    for (int c = 0; c < columns_at_once; ++c) sums[c] += x[k] * w[c * K + k];
  std::copy(sums, sums + columns_at_once, to);
}

void linear_i8(const Node& n, void*) {
  const int8_t *x = n.read<int8_t>(0), *w = n.read<int8_t>(1);
  const float *x_scale = n.read<float>(2), *w_scale = n.read<float>(3);
  const cpu::Input bias(n, 4);
  const cpu::Output y(n, 0);
  const int64_t R = rows(n.in(0)), K = columns(n.in(0)), N = columns(n.out(0)), across = (N + kBlock - 1) / kBlock;
  cpu::by_access(y.adds(), [&](auto add) {
    parallel((R + kBlock - 1) / kBlock * across, [=](int64_t task) {
      const int64_t r0 = task / across * kBlock, r1 = std::min(R, r0 + kBlock), j0 = task % across * kBlock,
                    size = std::min(N - j0, kBlock);
      cpu::Buffer bias_buffer, buffer;
      const float* const b = bias ? bias.read(j0, size, bias_buffer) : nullptr;
      int32_t sums[kBlock];
      for (int64_t r = r0; r < r1; ++r) {
        int64_t j = 0;
        for (; j + 4 <= size; j += 4) sums_of<4>(x + r * K, w + (j0 + j) * K, K, sums + j);
        for (; j < size; ++j) sums_of<1>(x + r * K, w + (j0 + j) * K, K, sums + j);
        float* const to = y.open(r * N + j0, size, buffer);
        for (int64_t i = 0; i < size; ++i)
          cpu::put(add, to[i], static_cast<float>(sums[i]) * (x_scale[r] * w_scale[j0 + i]) + (b ? b[i] : 0.0f));
        y.close(r * N + j0, size, to);
      }
    });
  });
}

bool numbers_out(const Node& n) { return cpu::is_number(n.out(0).dtype) && (!n.has(4) || cpu::is_number(n.in(4).dtype)); }

const bool added = add(kernel<linear_i8, numbers_out>("linear_i8.cpu", "linear_i8"));

}  // namespace
