// Numbers of the formats "companded8" and "split" (galley/cpp/companded8.hpp, split.hpp) made and coded on the CPU.
#pragma once

#include <algorithm>

#include "galley/cpp/companded8.hpp"
#include "galley/cpp/half.hpp"
#include "galley/cpp/node.hpp"
#include "galley/cpp/split.hpp"

namespace galley::split_states {

namespace companded8 = sdk::companded8;
namespace split = sdk::split;

/// A tensor in companded8, as it is in memory.
struct Companded8 {
  Companded8(void* first, uint16_t* second, bool with_signs) : codes(static_cast<uint8_t*>(first)), scales(second), is_signed(with_signs) {}
  explicit Companded8(const galley_operand& t) : is_signed(sdk::option(t, "signed", 1) != 0) {
    if (t.n_components != 2 || t.components[0]->dtype != (is_signed ? GALLEY_I8 : GALLEY_U8) || t.components[1]->dtype != GALLEY_BF16)
      sdk::unsupported("components other than those of companded8");
    codes = static_cast<uint8_t*>(t.components[0]->data);
    scales = static_cast<uint16_t*>(t.components[1]->data);
  }
  int64_t unit() const { return companded8::kGroup; }

  uint8_t* codes;
  uint16_t* scales;  ///< BF16, one for each group
  bool is_signed;
};

template <bool is_signed, class To>
void decode_as(const Companded8& from, int64_t first, int64_t n, To* __restrict to) {
  for (const int64_t end = first + n; first < end;) {
    const int64_t group = first / companded8::kGroup, size = std::min(end, (group + 1) * companded8::kGroup) - first;
    const float scale = companded8::value_of(from.scales[group]);
    const uint8_t* __restrict codes = from.codes + first;
    for (int64_t i = 0; i < size; ++i) sdk::from_float(companded8::entry(codes[i], is_signed) * scale, to[i]);
    first += size;
    to += size;
  }
}
template <class To>
void decode(const Companded8& from, int64_t first, int64_t n, To* to) {
  if (from.is_signed) decode_as<true>(from, first, n, to);
  else decode_as<false>(from, first, n, to);
}

template <bool is_signed>
void encode_as(const Companded8& to, int64_t first, int64_t n, const float* __restrict in) {
  uint8_t* __restrict codes = to.codes + first;
  for (int64_t begin = 0; begin < n; begin += companded8::kGroup) {
    const int64_t end = std::min(n, begin + companded8::kGroup);
    uint32_t most = 0;
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t m = companded8::magnitude_bits(in[i]);
      most = m > most ? m : most;
    }
    const uint16_t s = companded8::scale(most);
    to.scales[(first + begin) / companded8::kGroup] = s;
    const float by = companded8::inverse(s);
    for (int64_t i = begin; i < end; ++i) codes[i] = companded8::code<is_signed>(in[i], by);
  }
}
inline void encode(const Companded8& to, int64_t first, int64_t n, const float* from) {
  if (to.is_signed) encode_as<true>(to, first, n, from);
  else encode_as<false>(to, first, n, from);
}

/// A tensor in split, as it is in memory.
struct Split {
  Split(uint16_t* first, int8_t* second) : rounded(first), corrections(second) {}
  explicit Split(const galley_operand& t) {
    if (t.n_components != 2 || t.components[0]->dtype != GALLEY_BF16 || t.components[1]->dtype != GALLEY_I8)
      sdk::unsupported("components other than those of split");
    rounded = static_cast<uint16_t*>(t.components[0]->data);
    corrections = static_cast<int8_t*>(t.components[1]->data);
  }
  int64_t unit() const { return 1; }

  uint16_t* rounded;  ///< BF16
  int8_t* corrections;
};

/// In BF16 the first component as it is.
template <class To>
void decode(const Split& from, int64_t first, int64_t n, To* __restrict to) {
  const uint16_t* __restrict rounded = from.rounded + first;
  if constexpr (std::is_same_v<To, sdk::Bf16>) {
    std::memcpy(to, rounded, static_cast<size_t>(n) * sizeof *to);
  } else {
    const int8_t* __restrict corrections = from.corrections + first;
    for (int64_t i = 0; i < n; ++i) sdk::from_float(split::value(rounded[i], corrections[i]), to[i]);
  }
}
inline void encode(const Split& to, int64_t first, int64_t n, const float* __restrict in) {
  uint16_t* __restrict rounded = to.rounded + first;
  int8_t* __restrict corrections = to.corrections + first;
  for (int64_t i = 0; i < n; ++i) {
    rounded[i] = split::rounded(in[i]);
    corrections[i] = split::correction(in[i], rounded[i]);
  }
}

}  // namespace galley::split_states
