// Conversions to and from BF16 and F16: every one of the 65,536 bit patterns, and the rounding of numbers between them, against arithmetic
// in double.
#include "models/cpu/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "galley/cpp/node.hpp"
#include "tests/models/harness.hpp"

namespace galley::test {
namespace {

template <class T>
uint16_t bits_of(float x) {
  T y;
  cpu::from_float(x, y);
  return y.bits;
}

template <class T>
void every_pattern(uint32_t dtype) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const double expected = unpack(&pattern, dtype, 1)[0];
    const float got = cpu::to_float(T{pattern});
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got) && std::isnan(cpu::to_float(T{bits_of<T>(got)}))) << bits;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(static_cast<float>(expected))) << bits;
      EXPECT_EQ(bits_of<T>(got), pattern);
    }
  }
}

template <class T>
void rounding(uint32_t dtype, int lowest, int highest) {
  std::mt19937_64 random(seed());
  SCOPED_TRACE("GALLEY_TEST_SEED=" + std::to_string(seed()));
  const auto check = [&](float x) { EXPECT_EQ(cpu::to_float(T{bits_of<T>(x)}), static_cast<float>(rounded(x, dtype))) << x; };
  for (int k = 0; k < 300000; ++k) {
    const float x = std::ldexp(std::uniform_real_distribution(-2.0f, 2.0f)(random), std::uniform_int_distribution(lowest, highest)(random));
    check(x);
    // Halfway between two neighbours, and one step of F32 to either side.
    const float a = cpu::to_float(T{bits_of<T>(x)}), b = cpu::to_float(T{static_cast<uint16_t>(bits_of<T>(x) + 1)});
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    const float middle = a + (b - a) / 2;
    check(middle);
    check(std::nextafter(middle, a));
    check(std::nextafter(middle, b));
  }
  constexpr float inf = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
  for (const float x : {inf, -inf, largest, -largest, 65504.0f, 65519.996f, 65520.0f, 65536.0f, 0.0f, 1e-45f}) check(x);
  EXPECT_EQ(bits_of<T>(-0.0f), 0x8000);
}

TEST(Half, EveryPatternComesBack) {
  every_pattern<cpu::Bf16>(GALLEY_BF16);
  every_pattern<cpu::F16>(GALLEY_F16);
}

TEST(Half, RoundsToTheNearestEven) {
  rounding<cpu::Bf16>(GALLEY_BF16, -130, 127);
  rounding<cpu::F16>(GALLEY_F16, -27, 17);
}

// `data` converted by the copy kernel of a level.
std::vector<std::byte> converted(const Level& level, uint32_t from, uint32_t to, void* data, int64_t n) {
  Problem p;
  p.op = models().op("copy");
  p.name = "copy";
  p.inputs = {Tensor{from, {n}, {}}};
  p.outputs = {Tensor{to, {n}, {}}};
  const Memory in(n * galley_dtype_bytes(from), 0), out(n * galley_dtype_bytes(to), 0);
  std::memcpy(in.data(), data, static_cast<size_t>(in.bytes()));
  const View view(p, {in.data()}, {out.data()}, {GALLEY_WRITE}, false);
  const Launch made = launch(level.kernel("copy"), level.isa, {view.node()}, {view.node()});
  EXPECT_EQ(made.status, GALLEY_OK) << made.text;
  return {out.data(), out.data() + out.bytes()};
}

template <class T>
void same_bits_in_kernels(uint32_t dtype) {
  std::vector<T> patterns(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) patterns[bits].bits = static_cast<uint16_t>(bits);
  // All exponents; half of the numbers lie where F16 has subnormals, ends, or has no numbers.
  std::mt19937_64 random(seed());
  std::vector<uint32_t> floats(200003);
  for (size_t i = 0; i < floats.size(); ++i) {
    floats[i] = static_cast<uint32_t>(random());
    if (i % 2) floats[i] = (floats[i] & 0x8FFFFFFFu) | (i % 4 == 1 ? 0x30000000u : 0x40000000u);
    if (i % 50 == 0) floats[i] |= 0x7F800000u;  // NaN
  }
  for (const Level& level : models().levels) {
    SCOPED_TRACE(level.isa);
    const auto wide = converted(level, dtype, GALLEY_F32, patterns.data(), 65536);
    for (size_t i = 0; i < patterns.size(); ++i) {
      const float expected = cpu::to_float(patterns[i]);
      ASSERT_EQ(std::memcmp(wide.data() + 4 * i, &expected, 4), 0) << i;
    }
    const auto narrow = converted(level, GALLEY_F32, dtype, floats.data(), static_cast<int64_t>(floats.size()));
    for (size_t i = 0; i < floats.size(); ++i) {
      const uint16_t expected = bits_of<T>(std::bit_cast<float>(floats[i]));
      ASSERT_EQ(std::memcmp(narrow.data() + 2 * i, &expected, 2), 0) << std::hex << floats[i];
    }
  }
}

TEST(Half, KernelsConvertToTheSameBits) {
  same_bits_in_kernels<cpu::Bf16>(GALLEY_BF16);
  same_bits_in_kernels<cpu::F16>(GALLEY_F16);
}

}  // namespace
}  // namespace galley::test
