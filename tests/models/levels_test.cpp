// Which levels and kernels ran: the last lines of the program, which tests/summary.py reads.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/models/harness.hpp"

namespace galley::test {
namespace {

class Levels : public testing::Environment {
  void TearDown() override {
    if (GTEST_FLAG_GET(filter) != "*") return;
    std::string levels, kernels;
    for (const Level& level : models().levels) {
      levels += (levels.empty() ? "" : ", ") + level.isa;
      for (const galley_kernel* kernel : level.kernels)
        if (!has_run(kernel)) kernels += (kernels.empty() ? "" : ", ") + std::string(kernel->name) + " at " + level.isa;
    }
    std::printf("levels: %s\n", levels.c_str());
    if (!kernels.empty()) std::printf("kernels that did not run: %s\n", kernels.c_str());
  }
};
const auto* const levels = testing::AddGlobalTestEnvironment(new Levels);

}  // namespace
}  // namespace galley::test
