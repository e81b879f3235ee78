// Conversions to and from BF16 and F16: every one of the 65,536 bit patterns, and the rounding of numbers between them, against arithmetic
// in double.
#include "models/cpu/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

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

}  // namespace
}  // namespace galley::test
