// The formats of split-states: their bytes, what they lose, and that what no step changes stays as it is.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "galley/cpp/half.hpp"
#include "tests/strategies/kept.hpp"

namespace galley::test {
namespace {

namespace split = sdk::split;
namespace companded8 = sdk::companded8;

float back(float x) {
  const uint16_t y = split::rounded(x);
  return split::value(y, split::correction(x, y));
}

TEST(Split, HasTheseBytes) {
  struct Case {
    float x;
    uint16_t y;
    int correction;
  };
  // 1.001 is .001 above 1, whose half last place is 2⁻⁸: .256 · 128 = 32.768.
  for (const auto& [x, y, correction] : {Case{1.0f, 0x3F80, 0}, Case{1.001f, 0x3F80, 33}, Case{-1.001f, 0xBF80, -33}, Case{0.0f, 0, 0},
                                         Case{1.00390625f, 0x3F80, 127}, Case{1.01171875f, 0x3F82, -127}, Case{1.005f, 0x3F81, -92},
                                         Case{0.9990234375f, 0x3F80, -32}, Case{1e-35f, 0x0555, 0}, Case{3e38f, 0x7F62, -78}}) {
    EXPECT_EQ(split::rounded(x), y) << x;
    EXPECT_EQ(static_cast<int>(split::correction(x, split::rounded(x))), correction) << x;
  }
}

TEST(Split, IsOffByAThousandthOfAPlaceOfBf16) {
  std::mt19937 random(5);
  for (int i = 0; i < 200000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random());
    const float x = split::detail::number(bits);
    sdk::Bf16 nearest;
    sdk::from_float(x, nearest);
    EXPECT_EQ(split::rounded(x), nearest.bits) << x;
    if (!std::isfinite(x) || std::abs(x) < 1e-30f || std::abs(x) > 3.38e38f) continue;
    const float kept = back(x);
    EXPECT_LE(std::abs(static_cast<double>(kept) - x), std::ldexp(std::abs(static_cast<double>(x)), -15)) << x;
    EXPECT_EQ(back(kept), kept) << "what is kept stays: " << x;
    EXPECT_EQ(split::rounded(kept), split::rounded(x)) << "and so does what is read in BF16: " << x;
  }
  EXPECT_TRUE(std::isnan(back(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(back(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
}

/// The codes and the scale of a group.
template <bool is_signed>
std::pair<std::vector<int>, float> coded(const std::vector<float>& x) {
  std::vector<uint8_t> codes(x.size());
  uint16_t scale = 0;
  encode(split_states::Companded8(codes.data(), &scale, is_signed), 0, static_cast<int64_t>(x.size()), x.data());
  std::vector<int> out;
  for (const uint8_t c : codes) out.push_back(is_signed ? static_cast<int8_t>(c) : c);
  return {out, companded8::value_of(scale)};
}

TEST(Companded8, HasTheseBytes) {
  // 127 · 2t / (1 + |t|): of 1/2 84.67, of 1/4 50.8, of −1/100 −2.51; 255 · √t: of 1/4 127.5, of .015 31.2, of 1e-9 .008.
  const auto [with_signs, s] = coded<true>({2, 1, 0.5f, -0.02f, 0, -2, 1e-9f});
  EXPECT_EQ(with_signs, (std::vector<int>{127, 85, 51, -3, 0, -127, 0}));
  EXPECT_EQ(s, 2);
  const auto [without, u] = coded<false>({2, 0.5f, 0.03f, 2e-9f, 0});
  EXPECT_EQ(without, (std::vector<int>{255, 128, 31, 1, 0})) << "above 0 is not stored as 0";
  EXPECT_EQ(u, 2);
  EXPECT_EQ(coded<true>({0, 0, -0.0f}), (std::pair(std::vector<int>{0, 0, 0}, 0.0f)));
  EXPECT_TRUE(std::isnan(coded<true>({1, std::numeric_limits<float>::quiet_NaN()}).second)) << "what overflows is seen";
  EXPECT_TRUE(std::isfinite(coded<true>({std::numeric_limits<float>::max()}).second));
}

TEST(Companded8, IsOffByHalfACodeAtMostAndStays) {
  std::mt19937_64 random(6);
  std::normal_distribution<float> normal;
  for (const bool with_signs : {true, false}) {
    std::vector<double> x(32 * 500 + 7);
    for (double& v : x) v = with_signs ? normal(random) * 1e-4 : std::pow(normal(random) * 1e-4, 2);
    std::vector<double> once = x, twice;
    Kept{Kept::Split}.state(once, with_signs);
    twice = once;
    Kept{Kept::Split}.state(twice, with_signs);
    EXPECT_EQ(once, twice);
    for (size_t i = 0; i < x.size(); ++i) {
      double most = 0;
      for (size_t j = i / 32 * 32; j < std::min(x.size(), i / 32 * 32 + 32); ++j) most = std::max(most, std::abs(x[j]));
      const double t = x[i] / most, got = once[i] / most;
      // Half a code, and what BF16 loses of the scale.
      if (with_signs) EXPECT_LE(std::abs(2 * t / (1 + std::abs(t)) - 2 * got / (1 + std::abs(got))), 0.5 / 127 + 4e-3) << x[i];
      else EXPECT_LE(std::abs(std::sqrt(t) - std::sqrt(got)), (x[i] / most < 4e-6 ? 1.0 : 0.5) / 255 + 2e-3) << x[i];
    }
  }
}

}  // namespace
}  // namespace galley::test
