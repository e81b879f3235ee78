// What is looked at before a device is opened.
#include "host/session/study_checks.hpp"

#include <gtest/gtest.h>

#include "tests/exec/small.hpp"
#include "tests/session/built.hpp"

namespace galley {
namespace {

using small::Builder;

/// A program of two tensors, one of its kernels from the plugin "hand", and a plan that lays one tensor over the other.
class Foreign : public testing::Test {
 protected:
  Foreign() {
    Builder b;
    const TensorId x = b.tensor("x", {64}, Life::Segment), y = b.tensor("y", {64}, Life::Segment);
    b.kernel(SegmentKind::Load, small::fill, {}, {b.write(x)});
    b.kernel(SegmentKind::Load, small::add, {b.read(x), b.read(x)}, {b.write(y)});
    study_.plan = b.plan();
    study_.plan.placements[static_cast<size_t>(y)].offset = 0;
    study_.program = std::move(b.program);
    study_.program.kernels = {{"add", "add.a", "hand"}};
    study_.target = small::target();
    folder_ = build_folder() / "tests" / "plugins";
    const std::filesystem::path folders[] = {folder_};
    study_.plugins = Plugins::scan(folders);
  }
  Study study_;
  std::filesystem::path folder_;
};

TEST_F(Foreign, AProgramThatAPluginOfOthersHasTouchedIsProved) {
  study_.installation.plugins = "somewhere/else";
  const Status status = check_foreign(study_, checks());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Plugin);
  EXPECT_EQ(status.error().cause.rfind("the program does not pass its proof with plugin 'hand': ", 0), 0u) << status.error().cause;
}

TEST_F(Foreign, OurOwnIsProvedInTheTests) {
  study_.installation.plugins = folder_;
  EXPECT_TRUE(check_foreign(study_, checks()).ok());
}

TEST_F(Foreign, WhatIsRightPasses) {
  study_.installation.plugins = "somewhere/else";
  study_.plan.placements[1].offset = 256;
  const Status status = check_foreign(study_, checks());
  EXPECT_TRUE(status.ok()) << status.error().cause;
}

}  // namespace
}  // namespace galley
