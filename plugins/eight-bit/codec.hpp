// Numbers of the format "dynamic8" (galley/cpp/dynamic8.hpp) made and coded on the CPU.
#pragma once

#include <algorithm>

#include "galley/cpp/dynamic8.hpp"
#include "galley/cpp/half.hpp"
#include "galley/cpp/node.hpp"

namespace galley::eight_bit {

namespace dynamic8 = sdk::dynamic8;

/// A tensor in the format, as it is in memory.
struct Dynamic8 {
  Dynamic8(uint8_t* first, float* second, bool with_signs) : codes(first), absmax(second), is_signed(with_signs) {}
  explicit Dynamic8(const galley_operand& t) : is_signed(sdk::option(t, "signed", 1) != 0) {
    if (t.n_components != 2 || t.components[0]->dtype != GALLEY_U8 || t.components[1]->dtype != GALLEY_F32)
      sdk::unsupported("components other than those of dynamic8");
    codes = static_cast<uint8_t*>(t.components[0]->data);
    absmax = static_cast<float*>(t.components[1]->data);
  }
  int64_t unit() const { return dynamic8::kBlock; }

  uint8_t* codes;
  float* absmax;  ///< one for each block
  bool is_signed;
};

template <class To>
void decode(const Dynamic8& from, int64_t first, int64_t n, To* __restrict to) {
  const float* __restrict entries = dynamic8::book(from.is_signed);
  for (const int64_t end = first + n; first < end;) {
    const int64_t block = first / dynamic8::kBlock, size = std::min(end, (block + 1) * dynamic8::kBlock) - first;
    const float scale = from.absmax[block];
    const uint8_t* __restrict codes = from.codes + first;
    for (int64_t i = 0; i < size; ++i) sdk::from_float(entries[codes[i]] * scale, to[i]);
    first += size;
    to += size;
  }
}

template <bool is_signed>
void encode_as(const Dynamic8& to, int64_t first, int64_t n, const float* __restrict in) {
  uint8_t* __restrict codes = to.codes + first;
  for (int64_t begin = 0; begin < n; begin += dynamic8::kBlock) {
    const int64_t end = std::min(n, begin + dynamic8::kBlock);
    uint32_t most = 0;
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t m = dynamic8::magnitude_bits(in[i]);
      most = m > most ? m : most;
    }
    float largest;
    std::memcpy(&largest, &most, sizeof largest);
    to.absmax[(first + begin) / dynamic8::kBlock] = largest;
    const float by = dynamic8::inverse(largest);
    for (int64_t i = begin; i < end; ++i) codes[i] = dynamic8::code<is_signed>(in[i], by);
  }
}
inline void encode(const Dynamic8& to, int64_t first, int64_t n, const float* from) {
  if (to.is_signed) encode_as<true>(to, first, n, from);
  else encode_as<false>(to, first, n, from);
}

}  // namespace galley::eight_bit
