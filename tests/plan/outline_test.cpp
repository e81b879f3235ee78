// Two programs that differ only in how they number their tensors are one to the planner.
#include "host/plan/outline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "host/plan/plan.hpp"
#include "host/proofs/describe.hpp"
#include "tests/plan/models.hpp"

namespace galley {
namespace {

TEST(Outline, NumbersDoNotMatter) {
  const Target target = models::two_classes();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Program program = models::build(models::random_spec(seed));
    renumber(program, canonical_numbers(outline_of(program)));
    const Plan plan = make_plan(program, target);
    // Segments' tensors change places; what lives longer keeps its own.
    std::vector<TensorId> places, numbers(program.tensors.size());
    std::iota(numbers.begin(), numbers.end(), TensorId{0});
    for (const TensorId t : numbers)
      if (program.tensors[static_cast<size_t>(t)].life == Life::Segment) places.push_back(t);
    std::vector<TensorId> mixed = places;
    std::shuffle(mixed.begin(), mixed.end(), std::mt19937_64(seed));
    for (size_t i = 0; i < places.size(); ++i) numbers[static_cast<size_t>(places[i])] = mixed[i];
    Program shuffled = program;
    renumber(shuffled, numbers);
    renumber(shuffled, canonical_numbers(outline_of(shuffled)));
    EXPECT_EQ(describe_tensors(shuffled, make_plan(shuffled, target)), describe_tensors(program, plan)) << "seed " << seed;
    for (uint32_t memory = 0; memory < target.memories.size(); ++memory)
      EXPECT_EQ(plan_peak(outline_of(shuffled), target, memory), plan.classes[memory].planned);
  }
}

}  // namespace
}  // namespace galley
