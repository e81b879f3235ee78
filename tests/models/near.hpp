// Results beside a reference: bounds by dtype.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "galley/galley.h"

namespace galley::test {

/// What was rounded before the result was: `times` to `dtype`, numbers of these sizes or whose sizes have these sums. What rounding loses
/// is a share of that, however much of it is cancelled later.
struct Rounded {
  uint32_t dtype = GALLEY_F32;
  int times = 1;
  std::vector<double> sizes = {};
  /// How far each result moves when the inputs are off by what F32 may lose (`movements`): added to the bound, where w + a·b
  /// cancels. Asked for only if a result lies further away than all else allows.
  std::function<std::vector<double>()> moves = {};
};

/// The kernel whose results are compared from now on. The environment variable GALLEY_TEST_MARGINS names a file: when the program ends, it
/// gets a line "kernel dtype margin" for each of them, the largest error over its bound.
void compares_results_of(const char* kernel);

/// A share of each number's size and of the typical size of all of them, by the dtype of the result.
void expect_near(const std::vector<double>& got, const std::vector<double>& expected, uint32_t dtype, const std::string& what,
                 const Rounded& before = {});

/// Two results of one problem: each may lie as far from the right numbers as `expect_near` lets it, so the two may lie twice as far apart.
void expect_alike(const std::vector<double>& got, const std::vector<double>& other, uint32_t dtype, const std::string& what,
                  const Rounded& before = {});

}  // namespace galley::test
