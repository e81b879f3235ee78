#include "tests/models/near.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace galley::test {
namespace {

double tolerance(uint32_t dtype) {
  switch (dtype) {
    case GALLEY_F64: return 1e-6;  // kernels may compute in F32
    case GALLEY_F32: return 1e-5;
    case GALLEY_BF16: return 4e-3;
    case GALLEY_F16: return 5e-4;
    default: return 0;
  }
}

}  // namespace

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, uint32_t dtype, const std::string& what,
                 const Rounded& before) {
  ASSERT_EQ(got.size(), expected.size());
  double squares = 0;
  for (const double v : expected) squares += std::isfinite(v) ? v * v : 0;
  const double size = expected.empty() ? 0 : std::sqrt(squares / static_cast<double>(expected.size()));
  int64_t wrong = 0;
  size_t worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;  // also an infinity
    const double error = std::fabs(got[i] - expected[i]);
    double bound = tolerance(dtype) * (std::fabs(expected[i]) + size) + (dtype == GALLEY_F16 ? 0x1p-25 : 0);
    if (!before.sizes.empty()) bound += tolerance(before.dtype) * before.times * before.sizes[i];
    if (std::isfinite(error) && error <= bound) continue;
    if (!wrong++ || error > std::fabs(got[worst] - expected[worst])) worst = i;
  }
  EXPECT_EQ(wrong, 0) << what << ": element " << worst << " is " << got[worst] << ", not " << expected[worst] << " (typical size " << size
                      << ")";
}

}  // namespace galley::test
