#include "host/plan/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>

#include "host/plan/lifetime.hpp"
#include "host/plan/offsets.hpp"
#include "host/proofs/shadow.hpp"
#include "tests/plan/little.hpp"
#include "tests/plan/models.hpp"

namespace galley {
namespace {

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

std::pair<int, int> life(const Program& program, TensorId id) {
  const Lifetime l = find_lifetimes(program)[static_cast<size_t>(id)];
  return {l.first, l.last};
}

bool same(const Plan& a, const Plan& b) {
  auto equal = [](const Placement& x, const Placement& y) { return x.offset == y.offset && x.first == y.first && x.last == y.last; };
  auto alike = [](const ClassPlan& x, const ClassPlan& y) {
    return x.planned == y.planned && x.lower_bound == y.lower_bound && x.peak_at == y.peak_at && x.peak_name == y.peak_name &&
           x.owners == y.owners;
  };
  return a.segment_begin == b.segment_begin && a.end == b.end &&
         std::equal(a.placements.begin(), a.placements.end(), b.placements.begin(), b.placements.end(), equal) &&
         std::equal(a.classes.begin(), a.classes.end(), b.classes.begin(), b.classes.end(), alike);
}

/// load: 0; micro: 1 … 4; update: 5, 6; eval: 7.
struct Steps : Little {
  TensorId weight = tensor("weight", 100, Life::Run, 0, Owner::Weights),
           gradient = tensor("gradient", 100, Life::Window, 0, Owner::Gradients), kept = tensor("kept", 10, Life::Window),
           x = tensor("x", 50), y = tensor("y", 50), space = tensor("space", 30, Life::Segment, 0, Owner::Workspace),
           unused = tensor("unused", 1000), never = tensor("never", 40, Life::Run, 0, Owner::Data), none = tensor("none", 0),
           logits = tensor("logits", 20);
  explicit Steps(int64_t micro_batches = 1) {
    program.micro_batches = micro_batches;
    op(kLoad, "init", {}, {w(weight)});
    op(kMicro, "forward", {r(weight)}, {w(x)});
    op(kMicro, "act", {r(x)}, {w(y), w(none)}).launch()->workspace = space;
    op(kMicro, "backward", {r(y), r(none)}, {all(gradient, GALLEY_WRITE, GALLEY_ACCUMULATE), all(kept, GALLEY_WRITE, GALLEY_ACCUMULATE)});
    op(kMicro, "more", {}, {part(gradient, 10, 20, GALLEY_ACCUMULATE)});
    op(kUpdate, "step", {r(gradient), rw(weight)}, {});
    op(kUpdate, "after", {}, {});
    op(SegmentKind::Eval, "forward", {r(weight)}, {w(logits)});
  }
};

TEST(Lifetimes, OneMicroBatch) {
  const Steps s;
  using P = std::pair<int, int>;
  EXPECT_EQ(life(s.program, s.weight), P(0, 7));
  EXPECT_EQ(life(s.program, s.never), P(0, 7));
  EXPECT_EQ(life(s.program, s.gradient), P(3, 5));
  EXPECT_EQ(life(s.program, s.kept), P(3, 4)) << "not read in update: to the end of micro";
  EXPECT_EQ(life(s.program, s.x), P(1, 2));
  EXPECT_EQ(life(s.program, s.y), P(2, 3));
  EXPECT_EQ(life(s.program, s.space), P(2, 2));
  EXPECT_EQ(life(s.program, s.unused), P(-1, -1));
  EXPECT_EQ(life(s.program, s.none), P(2, 3));
  EXPECT_EQ(life(s.program, s.logits), P(7, 7));
}

TEST(Lifetimes, SeveralMicroBatches) {
  const Steps s(2);
  using P = std::pair<int, int>;
  EXPECT_EQ(life(s.program, s.gradient), P(1, 5)) << "must survive the whole of micro";
  EXPECT_EQ(life(s.program, s.kept), P(1, 4));
  EXPECT_EQ(life(s.program, s.x), P(1, 2));
}

TEST(Lifetimes, WhatTheHostReadsLivesToTheEndOfItsSegment) {
  Steps s;
  const TensorId sum = s.tensor("sum", 1), late = s.tensor("late", 1, Life::Window);
  s.program.segment(kUpdate).code[0].outputs.push_back(s.w(sum));
  s.program.segment(kMicro).code[0].outputs.push_back(s.w(late));
  for (const TensorId id : {sum, late}) {
    Trained trained;
    trained.sum_squares = s.r(id);
    s.program.trained.push_back(trained);
  }
  using P = std::pair<int, int>;
  EXPECT_EQ(life(s.program, sum), P(5, 6));
  EXPECT_EQ(life(s.program, late), P(1, 6));
}

/// load: 0; micro: 1, 2; caches: 3; sample: 4, 5; next: 6, 7.
struct Texts : Little {
  TensorId weight = tensor("weight", 16, Life::Run), x = tensor("x", 32), cache = tensor("cache", 32, Life::Texts),
           logits = tensor("logits", 16, Life::Texts), never = tensor("never", 8, Life::Texts);
  Texts() {
    op(kLoad, "init", {}, {w(weight)});
    op(kMicro, "forward", {r(weight)}, {w(x)});
    op(kMicro, "backward", {r(x), rw(weight)}, {});
    op(SegmentKind::Caches, "zeros", {}, {w(cache)});
    op(SegmentKind::Sample, "keep", {part(cache, 0, 4, GALLEY_READ_WRITE)}, {});
    op(SegmentKind::Sample, "attend", {r(cache)}, {});
    op(SegmentKind::Next, "keep one", {part(cache, 4, 1, GALLEY_READ_WRITE)}, {});
    op(SegmentKind::Next, "attend", {r(cache)}, {w(logits)});
  }
};

TEST(Lifetimes, WhatIsKeptWhileTextsAreWrittenLivesFromCachesToNext) {
  Texts s;
  using P = std::pair<int, int>;
  EXPECT_EQ(life(s.program, s.cache), P(3, 7)) << "a later piece of a prompt finds what an earlier one has put there";
  EXPECT_EQ(life(s.program, s.logits), P(3, 7)) << "the host may read them when another segment has run";
  EXPECT_EQ(life(s.program, s.never), P(-1, -1));
  const Plan plan = make_plan(s.program, little_target());
  ASSERT_TRUE(check_plan(s.program, plan, little_target()).ok());
  EXPECT_EQ(plan.classes[0].planned, 64 + 128 + 64) << "a step's x lies where the cache does";
  EXPECT_EQ(verdict(s.program), "");
  Plan shorter = plan;
  --shorter.placements[static_cast<size_t>(s.cache)].last;
  EXPECT_SAYS(check_plan(s.program, shorter, little_target()).error().cause,
              "'cache' lives from 3 to 6: what is kept while texts are generated must live in [3, 8)");
  s.op(kMicro, "wrong", {s.r(s.cache)}, {});
  EXPECT_SAYS(check_program(s.program, little_target()).error().cause, "tensor 'cache' of texts is used in micro, caches, sample, next");
}

TEST(Lifetimes, CopiesAreInFlight) {
  for (const uint32_t queue : {0u, 1u}) {
    Little l;
    const TensorId x = l.tensor("x", 10), away = l.tensor("away", 10, Life::Segment, 1), y = l.tensor("y", 10);
    l.op(kMicro, "make", {}, {l.w(x)});
    l.sync(kMicro, Action::Record, 0, 1);
    l.op(kMicro, "between", {}, {l.w(y)});
    l.sync(kMicro, Action::Wait, queue, 1);
    l.copy(kMicro, "out", x, away, queue, 2);
    l.op(kMicro, "other", {l.r(y)}, {});
    l.sync(kMicro, Action::Wait, 0, 2);
    l.op(kMicro, "last", {}, {});
    using P = std::pair<int, int>;
    EXPECT_EQ(life(l.program, x), P(0, 6));
    // Queue 1 may begin when the event has been recorded, queue 0 when its turn comes.
    EXPECT_EQ(life(l.program, away), queue == 1 ? P(2, 6) : P(4, 6));
  }
}

TEST(Plan, OfAStep) {
  const Steps s;
  const Plan plan = make_plan(s.program, little_target());
  ASSERT_TRUE(check_plan(s.program, plan, little_target()).ok());
  EXPECT_EQ(plan.segment_begin, (std::array<int32_t, segment_count>{0, 1, 1, 1, 1, 1, 5, 7, 8, 8, 8, 8}));
  EXPECT_EQ(plan.end, 8);
  // Run: 448 + 192; at "backward": y 256, gradient 448, kept 64; at "act": x 256, y 256, space 128.
  EXPECT_EQ(plan.classes[0].lower_bound, 640 + 768);
  EXPECT_EQ(plan.classes[0].planned, plan.classes[0].lower_bound);
  EXPECT_EQ(plan.classes[0].peak_at, (Moment{kMicro, 2}));
  EXPECT_EQ(plan.classes[0].peak_name, "backward");
  EXPECT_EQ(plan.classes[0].owners, (std::array<int64_t, owner_names.size()>{448, 448, 0, 0, 320, 0, 192}));
  // Tensors of the run lie at the bottom in a row, used or not.
  EXPECT_EQ(plan.placements[static_cast<size_t>(s.weight)].offset, 0);
  EXPECT_EQ(plan.placements[static_cast<size_t>(s.never)].offset, 448);
  EXPECT_EQ(plan.placements[static_cast<size_t>(s.unused)].first, -1);
  EXPECT_EQ(plan.placements[static_cast<size_t>(s.none)].offset, 0);
  EXPECT_EQ(plan.classes[1].planned, 0);
  EXPECT_EQ(plan_peak(outline_of(s.program), little_target(), 0), plan.classes[0].planned);
}

TEST(Plan, OfNothing) {
  Little l;
  l.tensor("weight", 10, Life::Run);
  const Plan plan = make_plan(l.program, little_target());
  EXPECT_EQ(plan.classes[0].planned, 64);
  EXPECT_EQ(plan.classes[0].lower_bound, 64);
  EXPECT_TRUE(check_plan(l.program, plan, little_target()).ok());
  EXPECT_EQ(make_plan(Program(), little_target()).classes[0].planned, 0);
}

TEST(Plan, TransformersComeCloseToTheLowerBound) {
  const Target target = models::two_classes();
  double worst = 1;
  int exact = 0, all = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const models::Spec spec = models::random_spec(seed);
    const Program program = models::build(spec);
    const Plan plan = make_plan(program, target);
    for (const ClassPlan& c : plan.classes) {
      if (c.lower_bound == 0) continue;
      const double ratio = static_cast<double>(c.planned) / static_cast<double>(c.lower_bound);
      EXPECT_LE(ratio, 1.02) << "seed " << seed << ": " << models::text(spec);
      EXPECT_EQ(std::accumulate(c.owners.begin(), c.owners.end(), int64_t{0}), c.lower_bound);
      worst = std::max(worst, ratio);
      exact += c.planned == c.lower_bound;
      ++all;
    }
    EXPECT_EQ(plan_peak(outline_of(program), target, 0), plan.classes[0].planned);
    const Status status = check_plan(program, plan, target);
    EXPECT_TRUE(status.ok()) << "seed " << seed << ": " << models::text(spec) << "\n" << status.error().cause;
  }
  std::printf("[   INFO   ] %d of %d classes at the lower bound, the worst %.5f of it\n", exact, all, worst);
}

TEST(Plan, IsTheSameEveryTime) {
  const Target target = models::two_classes();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Program program = models::build(models::random_spec(seed));
    EXPECT_TRUE(same(make_plan(program, target), make_plan(models::build(models::random_spec(seed)), target))) << "seed " << seed;
  }
}

TEST(Plan, SevenBillion) {
  const Target target = models::two_classes();
  const Program program = models::build(models::seven_billion());
  auto begin = std::chrono::steady_clock::now();
  const Plan plan = make_plan(program, target);
  const double planning = milliseconds_since(begin);
  begin = std::chrono::steady_clock::now();
  const Status status = check_plan(program, plan, target);
  const double checking = milliseconds_since(begin);
  EXPECT_TRUE(status.ok()) << status.error().cause;
  const ClassPlan& host = plan.classes[0];
  EXPECT_LE(static_cast<double>(host.planned), 1.02 * static_cast<double>(host.lower_bound));
  std::printf(
      "[   INFO   ] %zu tensors, %d moments, %.2f GiB, %.5f of the lower bound, peak at %s; planned in %.1f ms, checked in %.1f ms\n",
      program.tensors.size(), plan.end, static_cast<double>(host.planned) / (1 << 30),
      static_cast<double>(host.planned) / static_cast<double>(host.lower_bound), host.peak_name.c_str(), planning, checking);
}

// Blocks without any structure, where no order is right and the trials are used up.
TEST(Pack, RandomBlocks) {
  double worst = 1, sum = 0;
  constexpr int rounds = 40;
  for (uint64_t seed = 0; seed < rounds; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Block> blocks(20 + random() % 200);
    const auto moments = static_cast<uint64_t>(blocks.size());
    for (Block& b : blocks) {
      b.bytes = static_cast<int64_t>(64 * (random() % 100));
      b.first = static_cast<int32_t>(random() % moments);
      const uint64_t longest = random() % 4 ? 8 : moments;
      b.last = b.first + static_cast<int32_t>(random() % longest);
    }
    const BlockOffsets packing = pack(blocks);
    ASSERT_EQ(packing.offsets.size(), blocks.size());
    int64_t peak = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      peak = std::max(peak, packing.offsets[i] + blocks[i].bytes);
      for (size_t j = 0; j < i; ++j) {
        if (blocks[i].last < blocks[j].first || blocks[j].last < blocks[i].first) continue;
        EXPECT_TRUE(packing.offsets[i] + blocks[i].bytes <= packing.offsets[j] ||
                    packing.offsets[j] + blocks[j].bytes <= packing.offsets[i] || blocks[i].bytes == 0 || blocks[j].bytes == 0);
      }
    }
    int64_t bound = 0;
    for (int32_t t = 0; t < static_cast<int32_t>(2 * moments); ++t) {
      int64_t live = 0;
      for (const Block& b : blocks) live += b.first <= t && t <= b.last ? b.bytes : 0;
      bound = std::max(bound, live);
    }
    EXPECT_EQ(packing.lower_bound, bound);
    EXPECT_EQ(packing.peak, peak);
    EXPECT_EQ(pack(blocks).offsets, packing.offsets);
    const double ratio = static_cast<double>(peak) / static_cast<double>(bound);
    worst = std::max(worst, ratio);
    sum += ratio / rounds;
  }
  EXPECT_LE(worst, 1.15);
  std::printf("[   INFO   ] random blocks: %.4f of the lower bound on average, the worst %.4f\n", sum, worst);
}

TEST(Pack, NothingAndEmptyBlocks) {
  EXPECT_EQ(pack({}).peak, 0);
  const std::vector<Block> blocks = {{0, 0, 5}, {64, 1, 2}, {0, 1, 1}, {64, 3, 3}};
  const BlockOffsets packing = pack(blocks);
  EXPECT_EQ(packing.peak, 64);
  EXPECT_EQ(packing.offsets, (std::vector<int64_t>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace galley
