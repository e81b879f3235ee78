// What a format keeps of numbers, against what its manifest promises.
#include <gtest/gtest.h>

#include <cmath>

#include "galley/cpp/plugin.hpp"
#include "host/proofs/format_promise.hpp"

namespace galley {
namespace {

/// Numbers of 2 rows of 130, the largest of each block of 64 among them, and what 8 bit keep of them.
struct Packed {
  Numbers was = Numbers::of(GALLEY_F32, {2, 130}), kept = was;
  Packed() {
    for (size_t i = 0; i < was.floats.size(); ++i)
      was.floats[i] = std::sin(static_cast<double>(i) * 0.7) * (1 + static_cast<double>(i / 64));
    for (size_t b = 0; b < 5; ++b) {
      const double most = largest(b);
      for (size_t i = 64 * b; i < end(b); ++i) kept.floats[i] = std::nearbyint(was.floats[i] / most * 127) / 127 * most;
    }
  }
  size_t end(size_t b) const { return std::min<size_t>(64 * (b + 1), was.floats.size()); }
  double largest(size_t b) const {
    double most = 0;
    for (size_t i = 64 * b; i < end(b); ++i) most = std::max(most, std::fabs(was.floats[i]));
    return most;
  }
};

const galley_op& op() {
  static sdk::Op op("promise_pack", "");
  static const galley_op* const table = op.integer("block", 64, "").integer("double", 0, "").table();
  return *table;
}

FormatPromise promise(double within, double largest) {
  FormatPromise out;
  out.block_of = "block";
  out.within = within;
  out.largest = largest;
  return out;
}

TEST(FormatPromise, HoldsWhatEightBitsKeep) {
  const Packed p;
  EXPECT_EQ(broken_promise(promise(0.004, 1e-6), op(), {}, p.was, p.kept), "");
  EXPECT_NE(broken_promise(promise(0.001, 1e-6), op(), {}, p.was, p.kept), "");
}

TEST(FormatPromise, FindsOneBlockThatIsTwoPercentOff) {
  Packed p;
  for (size_t i = 128; i < 192; ++i) p.kept.floats[i] *= 1.02;
  const std::string found = broken_promise(promise(0.152, 1e-6), op(), {}, p.was, p.kept);
  EXPECT_NE(found.find("the largest of block 2 of 64 numbers"), std::string::npos) << found;
  EXPECT_NE(found.find("off by 2% of the block's largest"), std::string::npos) << found;
}

TEST(FormatPromise, ScalesThatShareOneHaveRoomByIt) {
  Packed p;
  for (double& x : p.kept.floats) x *= 1.002;
  FormatPromise shared = promise(0.01, 0);
  EXPECT_NE(broken_promise(shared, op(), {}, p.was, p.kept), "");
  shared.group = 8;
  shared.of_group = 0.007;
  EXPECT_EQ(broken_promise(shared, op(), {}, p.was, p.kept), "");
}

TEST(FormatPromise, IsTheFirstWhoseAttributesFit) {
  FormatPromise doubled = promise(0.2, 0), single = promise(0.1, 0);
  doubled.when["double"] = {Value(int64_t{1})};
  single.when["double"] = {Value(int64_t{0})};
  AttrList attrs;
  EXPECT_EQ(promise_for({&doubled, &single}, op(), attrs), &single);
  attrs.set("double", int64_t{1});
  EXPECT_EQ(promise_for({&doubled, &single}, op(), attrs), &doubled);
  EXPECT_EQ(promise_for({&single}, op(), attrs), nullptr);
}

}  // namespace
}  // namespace galley
