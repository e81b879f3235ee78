// The format "four-bit": numbers as codes of 4 bits, block by block, in NF4 (Dettmers, Pagnoni, Holtzman, Zettlemoyer, "QLoRA", NeurIPS
// 2023, arXiv:2305.14314) or FP4, with the bytes that bitsandbytes stores (quantize_4bit).
//
// `block` numbers in a row, in the order in which they are stored, share the largest magnitude among them, absmax; a number is absmax times
// an entry of one of two code books. Its code is that of the entry nearest to x / absmax; the lower one of two that are as near. Two codes
// make a byte, the first one in its high half; after an odd count comes the code of 0.
//
// With double quantization, absmax is stored in 8 bit: as the code of absmax − offset, in blocks of 256, in the code book of dynamic8.hpp
// with signs. The offset is the mean of all absmax, as PyTorch adds F32 numbers up (OffsetSum).
//
// Components, of a tensor of n numbers:
//   ""                codes           U8   ((n + 1) / 2, 1)
//   ".absmax"         absmax          F32 (blocks), or its codes, U8
//   ".nested_absmax"  with `double`:  F32, one for 256 absmax
//   ".nested_offset"  with `double`:  F32, one number
// Options: "type", "nf4" or "fp4"; "block"; "double", 0 or 1. Each number takes 4 + 32 / block bits; with `double` 4 + 8 / block +
// 32 / (256 · block), which for blocks of 64 is 4.127.
#pragma once

#include "galley/cpp/dynamic8.hpp"
#include "galley/cpp/node.hpp"

namespace galley::four_bit {

namespace dynamic8 = sdk::dynamic8;

inline constexpr const char* kName = "four-bit";
inline constexpr int64_t kNested = dynamic8::kBlock;  ///< absmax that share one of theirs

/// The two code books.
enum Type : uint32_t { kNf4, kFp4 };

GALLEY_ANYWHERE int64_t divided(int64_t n, int64_t by) { return (n + by - 1) / by; }

namespace detail {

/// Entries in order of their values. Without an array: a GPU would have it in local memory. Zero is twice in FP4.
GALLEY_ANYWHERE float sorted(int rank, Type type) {
  if (type == kNf4) {
    switch (rank) {
      case 0: return -1.0f;
      case 1: return -0.6961928009986877f;
      case 2: return -0.5250730514526367f;
      case 3: return -0.39491748809814453f;
      case 4: return -0.28444138169288635f;
      case 5: return -0.18477343022823334f;
      case 6: return -0.09105003625154495f;
      case 7: return 0.0f;
      case 8: return 0.07958029955625534f;
      case 9: return 0.16093020141124725f;
      case 10: return 0.24611230194568634f;
      case 11: return 0.33791524171829224f;
      case 12: return 0.44070982933044434f;
      case 13: return 0.5626170039176941f;
      case 14: return 0.7229568362236023f;
      default: return 1.0f;
    }
  }
  const int of_sign = rank < 8 ? 7 - rank : rank - 8;
  const float twelfths = of_sign == 0   ? 0.0f
                         : of_sign == 1 ? 0.0625f
                         : of_sign == 2 ? 2.0f
                         : of_sign == 3 ? 3.0f
                         : of_sign == 4 ? 4.0f
                         : of_sign == 5 ? 6.0f
                         : of_sign == 6 ? 8.0f
                                        : 12.0f;
  return rank < 7 ? -twelfths / 12.0f : twelfths / 12.0f;
}

/// An entry's code by its rank, and back. FP4's are a sign and three bits of a number with an exponent.
GALLEY_ANYWHERE int code_of_rank(int rank, Type type) {
  if (type == kNf4) return rank;
  constexpr uint64_t codes = 0x32547618'09EFCDABull;  // four bits each, the lowest rank first
  return static_cast<int>(codes >> (4 * rank) & 15u);
}
GALLEY_ANYWHERE int rank_of_code(int code, Type type) {
  if (type == kNf4) return code;
  constexpr uint64_t ranks = 0x45230168'BADCFE97ull;
  return static_cast<int>(ranks >> (4 * code) & 15u);
}

/// Halfway between two neighbours: a number above it takes the upper one.
GALLEY_ANYWHERE float bound(int lower_rank, Type type) { return (sorted(lower_rank, type) + sorted(lower_rank + 1, type)) / 2; }

}  // namespace detail

/// What a code stands for, as a share of absmax.
GALLEY_ANYWHERE float value(int code, Type type) { return detail::sorted(detail::rank_of_code(code, type), type); }

/// The code of t = x / absmax.
GALLEY_ANYWHERE int code(float t, Type type) {
  int rank = 0;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int k = 0; k < 15; ++k) rank += t > detail::bound(k, type) ? 1 : 0;
  return detail::code_of_rank(rank, type);
}

/// A whole block's numbers are multiplied by the inverse of its absmax; those of a block that ends before are divided by it. Absmax is
/// never below `kLeast` there.
inline constexpr float kLeast = 1e-38f;
GALLEY_ANYWHERE float share(float x, float absmax, bool whole) {
  const float most = absmax > kLeast ? absmax : kLeast;
  const float t = whole ? x * (1.0f / most) : x / most;
  return t > 1 ? 1.0f : t < -1 ? -1.0f : t;
}
/// Absmax as it is stored.
GALLEY_ANYWHERE float kept_absmax(float absmax, bool whole) { return whole || absmax > kLeast ? absmax : kLeast; }

/// The 8-bit code of d = absmax − offset, whose block has the largest magnitude `largest`.
GALLEY_ANYWHERE int nested_code(float d, float largest) {
  if (!(largest > 0)) return 0;
  const float t = d * (1.0f / largest);
  const int near = dynamic8::code<true>(t, 1.0f), first = near > 0 ? near - 1 : 0, last = near < 255 ? near + 1 : 255;
  int best = first;
  float least = 3;
  for (int k = first; k <= last; ++k) {
    const float distance = fabsf(t - dynamic8::value(k, true));
    best = distance < least ? k : best;
    least = distance < least ? distance : least;
  }
  return best;
}

/// The mean of all absmax, in the order in which PyTorch adds up F32 numbers on one thread: eight columns side by side, four rows of them
/// at a time, each such chain in levels.
namespace offset {

inline constexpr int64_t kColumns = 8, kRows = 4, kChains = kColumns * kRows;

/// How many chains n numbers have, and how many numbers each of them adds up; what is left over is added after.
GALLEY_ANYWHERE int64_t columns(int64_t n) { return n < kColumns ? 1 : kColumns; }
GALLEY_ANYWHERE int64_t length(int64_t n) { return n / (columns(n) * kRows); }

/// x[0] + x[stride] + …, `length` of them.
GALLEY_ANYWHERE float chain(const float* x, int64_t stride, int64_t length) {
  int64_t bits = 0;
  while ((int64_t{1} << bits) < length) ++bits;
  const int64_t level = bits / 4 > 4 ? bits / 4 : 4, step = int64_t{1} << level, mask = step - 1;
  float a = 0, b = 0, c = 0, d = 0;
  int64_t i = 0;
  while (i + step <= length) {
    for (int64_t j = 0; j < step; ++j, ++i) a += x[i * stride];
    b += a;
    a = 0;
    if (i & (mask << level)) continue;
    c += b;
    b = 0;
    if (i & (mask << 2 * level)) continue;
    d += c;
    c = 0;
  }
  for (; i < length; ++i) a += x[i * stride];
  a += b;
  a += c;
  a += d;
  return a;
}

/// The mean of n numbers by the sums of their chains, which are overwritten.
GALLEY_ANYWHERE float mean(const float* x, int64_t n, float* sums) {
  const int64_t across = columns(n), rows = n / across;
  for (int64_t row = length(n) * kRows; row < rows; ++row)
    for (int64_t k = 0; k < across; ++k) sums[k] += x[row * across + k];
  for (int64_t row = 1; row < kRows; ++row)
    for (int64_t k = 0; k < across; ++k) sums[k] += sums[row * across + k];
  float all = 0;
  for (int64_t i = rows * across; i < n; ++i) all += x[i];
  for (int64_t k = 0; k < across; ++k) all += sums[k];
  return all / static_cast<float>(n);
}

}  // namespace offset

inline float offset_of(const float* absmax, int64_t n) {
  float sums[offset::kChains];
  const int64_t chains = offset::columns(n) * offset::kRows;
  for (int64_t k = 0; k < chains; ++k) sums[k] = offset::chain(absmax + k, chains, offset::length(n));
  return offset::mean(absmax, n, sums);
}

// ---- Options and operands -----------------------------------------------------------------------------------------------------------

struct Options {
  Type type = kNf4;
  int64_t block = 64;
  bool doubled = false;

  Options() = default;
  /// Throws for an option that the format does not have. The pack and the unpack op have one more, "dtype".
  Options(const galley_attr* const* attrs, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) {
      const galley_attr& a = *attrs[i];
      const bool number = a.type == GALLEY_ATTR_I64 && a.count == 1;
      if (galley_same_text(a.name, "type") && a.type == GALLEY_ATTR_STRING) {
        const char* const text = static_cast<const char*>(a.data);
        if (!galley_same_text(text, "nf4") && !galley_same_text(text, "fp4"))
          sdk::invalid(std::string("four-bit: type = '") + text + "'; it has to be nf4 or fp4");
        type = galley_same_text(text, "fp4") ? kFp4 : kNf4;
      } else if (galley_same_text(a.name, "block") && number) {
        block = *static_cast<const int64_t*>(a.data);
        if (block < 32 || block > 4096 || (block & (block - 1)))
          sdk::invalid("four-bit: block = " + std::to_string(block) + "; it has to be 32, 64, 128, … or 4096");
      } else if (galley_same_text(a.name, "double") && number) {
        doubled = *static_cast<const int64_t*>(a.data) != 0;
      } else if (!galley_same_text(a.name, "dtype")) {
        sdk::invalid(std::string("four-bit has no option '") + a.name + "'");
      }
    }
  }

  int64_t blocks(int64_t numbers) const { return divided(numbers, block); }
  int64_t nested(int64_t numbers) const { return divided(blocks(numbers), kNested); }
};

/// A tensor in the format, as it lies in memory. Copied to the device as it is.
struct Coded {
  const uint8_t* codes = nullptr;
  const void* absmax = nullptr;  ///< F32, or codes
  const float *nested_absmax = nullptr, *nested_offset = nullptr;
  int64_t block = 64;
  Type type = kNf4;
  uint32_t doubled = 0;

  Coded() = default;
  Coded(const galley_operand* const* components, const Options& options)
      : codes(static_cast<const uint8_t*>(components[0]->data)),
        absmax(components[1]->data),
        nested_absmax(options.doubled ? static_cast<const float*>(components[2]->data) : nullptr),
        nested_offset(options.doubled ? static_cast<const float*>(components[3]->data) : nullptr),
        block(options.block),
        type(options.type),
        doubled(options.doubled) {}
  explicit Coded(const galley_operand& operand) : Coded(operand.components, Options(operand.attrs, operand.n_attrs)) {}

  /// The absmax of a block; `book`: of dynamic8, with signs.
  GALLEY_ANYWHERE float absmax_of(int64_t of, const float* book) const {
    if (!doubled) return static_cast<const float*>(absmax)[of];
    return book[static_cast<const uint8_t*>(absmax)[of]] * nested_absmax[of / kNested] + *nested_offset;
  }
};

}  // namespace galley::four_bit
