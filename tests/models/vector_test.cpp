// The elementary functions of models/cpu/vector.hpp against the library's in double: error in units of the last place, special values, and
// bits that do not depend on whether a loop was vectorised.
#include "models/cpu/vector.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace {

namespace cpu = galley::cpu;

/// The distance in units of the last place of F32 at `exact` (of the smallest normal number below it).
double ulps(float got, double exact) {
  const double size = std::max(std::fabs(exact), 1.17549435e-38);
  return std::fabs(got - exact) / std::ldexp(1.0, std::ilogb(size) - 23);
}

template <class F, class G>
double worst(F fast, G exact, float low, float high, int64_t n = 1 << 20) {
  double result = 0;
  for (int64_t i = 0; i <= n; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / static_cast<float>(n);
    const double error = ulps(fast(x), exact(static_cast<double>(x)));
    if (!(error <= result)) result = error;
  }
  return result;
}

TEST(Vector, FunctionsAreAccurate) {
  const auto exp = [](double x) { return std::exp(x); };
  EXPECT_LT(worst(cpu::exp, exp, -87.3f, 88.72f), 1.5);
  EXPECT_LT(worst(cpu::exp, exp, -1.0f, 1.0f), 1.5);
  const auto log = [](double x) { return std::log(x); };
  EXPECT_LT(worst(cpu::log, log, 1e-3f, 3.0f), 1.5);
  EXPECT_LT(worst(cpu::log, log, 1.0f, 1e30f), 1.5);
  EXPECT_LT(worst(cpu::log, log, 1e-44f, 1e-36f), 1.5);
  const auto tanh = [](double x) { return std::tanh(x); };
  EXPECT_LT(worst(cpu::tanh, tanh, -12.0f, 12.0f), 3.0);
  EXPECT_LT(worst(cpu::tanh, tanh, -0.01f, 0.01f), 3.0);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(worst(cpu::sigmoid, sigmoid, -80.0f, 80.0f), 3.0);
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  EXPECT_LT(worst(cpu::silu, silu, -80.0f, 80.0f), 3.0);
  const auto erf = [](double x) { return std::erf(x); };
  EXPECT_LT(worst(cpu::erf, erf, -5.0f, 5.0f), 2.0);
  EXPECT_LT(worst(cpu::erf, erf, -0.01f, 0.01f), 2.0);
}

TEST(Vector, SpecialValuesComeThrough) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float noisy = std::bit_cast<float>(0xFFC12345u);  // a payload must not be taken for an exponent
  EXPECT_EQ(cpu::exp(0.0f), 1.0f);
  EXPECT_EQ(cpu::exp(-inf), 0.0f);
  EXPECT_EQ(cpu::exp(inf), inf);
  EXPECT_EQ(cpu::exp(88.73f), inf);
  EXPECT_EQ(cpu::exp(-87.4f), 0.0f);
  EXPECT_EQ(cpu::exp(-1e30f), 0.0f);
  EXPECT_EQ(cpu::exp(1e30f), inf);
  EXPECT_EQ(cpu::log(1.0f), 0.0f);
  EXPECT_EQ(cpu::log(0.0f), -inf);
  EXPECT_EQ(cpu::log(inf), inf);
  EXPECT_TRUE(std::isnan(cpu::log(-1.0f)));
  EXPECT_EQ(cpu::tanh(inf), 1.0f);
  EXPECT_EQ(cpu::tanh(-inf), -1.0f);
  EXPECT_EQ(cpu::erf(inf), 1.0f);
  EXPECT_EQ(cpu::erf(-inf), -1.0f);
  EXPECT_EQ(cpu::sigmoid(-inf), 0.0f);
  EXPECT_EQ(cpu::sigmoid(inf), 1.0f);
  for (float (*f)(float) : {cpu::exp, cpu::log, cpu::tanh, cpu::sigmoid, cpu::silu, cpu::erf})
    EXPECT_TRUE(std::isnan(f(nan)) && std::isnan(f(noisy)));
}

TEST(Vector, SumsDoNotDependOnAlignmentOrLoopShape) {
  std::vector<float> x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i) * 7.3f);
  for (int64_t n : {0, 1, 5, 31, 32, 33, 63, 64, 100, 997}) {
    const float whole = cpu::sum(n, [&](int64_t i) { return x[i]; });
    float lane[32] = {};
    for (int64_t i = 0; i < n; ++i) {
      volatile float term = x[i];
      lane[i % 32] += term;
    }
    EXPECT_EQ(whole, cpu::fold(lane)) << n;
    std::vector<float> moved(n + 1);
    std::copy_n(x.begin(), n, moved.begin() + 1);
    EXPECT_EQ(whole, cpu::sum(n, [&](int64_t i) { return moved[i + 1]; })) << n;
    if (n) {
      EXPECT_EQ(cpu::largest(x.data(), n), *std::max_element(x.begin(), x.begin() + n));
    }
  }
}

}  // namespace
