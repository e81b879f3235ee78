#include "tests/models/near.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "tests/models/harness.hpp"

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

const char* dtype_name(uint32_t dtype) {
  return dtype == GALLEY_F64 ? "f64" : dtype == GALLEY_F32 ? "f32" : dtype == GALLEY_BF16 ? "bf16" : dtype == GALLEY_F16 ? "f16" : "whole";
}

/// The largest error over its bound, by kernel and dtype.
struct Margins {
  ~Margins() {
    const char* const path = std::getenv("GALLEY_TEST_MARGINS");
    std::FILE* const file = path ? std::fopen(path, "a") : nullptr;
    if (!file) return;
    for (const auto& [of, largest] : all) std::fprintf(file, "%s %s %.3f\n", of.first.c_str(), dtype_name(of.second), largest);
    std::fclose(file);
  }
  void add(uint32_t dtype, double margin) {
    if (kernel.empty()) return;
    double& largest = all[{kernel, dtype}];
    if (!(margin <= largest)) largest = margin;
  }
  std::string kernel;
  std::map<std::pair<std::string, uint32_t>, double> all;
};
Margins margins;

/// `results`: how many of the two were computed and rounded.
void expect_within(int results, const std::vector<double>& got, const std::vector<double>& expected, uint32_t dtype,
                   const std::string& what, const Rounded& before) {
  ASSERT_EQ(got.size(), expected.size());
  double squares = 0;
  for (const double v : expected) squares += std::isfinite(v) ? v * v : 0;
  const double size = expected.empty() ? 0 : std::sqrt(squares / static_cast<double>(expected.size()));
  int64_t wrong = 0;
  size_t worst = 0;
  double margin = 0;
  std::vector<double> moves;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;  // also an infinity
    const double error = std::fabs(got[i] - expected[i]);
    double bound = results * tolerance(dtype) * (std::fabs(expected[i]) + size) + (dtype == GALLEY_F16 ? results * 0x1p-25 : 0);
    if (!before.sizes.empty()) bound += tolerance(before.dtype) * before.times * before.sizes[i];
    if (!(error <= bound) && before.moves && floating(dtype)) {
      if (moves.empty()) moves = before.moves();
      bound += results * moves.at(i);
    }
    if (!(error <= margin * bound)) margin = bound > 0 ? error / bound : HUGE_VAL;
    if (std::isfinite(error) && error <= bound) continue;
    if (!wrong++ || error > std::fabs(got[worst] - expected[worst])) worst = i;
  }
  margins.add(dtype, margin);
  EXPECT_EQ(wrong, 0) << what << ": element " << worst << " is " << got[worst] << ", not " << expected[worst] << " (typical size " << size
                      << ")";
}

}  // namespace

void compares_results_of(const char* kernel) { margins.kernel = kernel; }

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, uint32_t dtype, const std::string& what,
                 const Rounded& before) {
  expect_within(1, got, expected, dtype, what, before);
}

void expect_alike(const std::vector<double>& got, const std::vector<double>& other, uint32_t dtype, const std::string& what,
                  const Rounded& before) {
  expect_within(2, got, other, dtype, what, before);
}

}  // namespace galley::test
