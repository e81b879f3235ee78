// The shadow's own test: plans that are wrong in one place must be rejected.
//
// Mutations: the life of a used tensor begins one moment later or ends one earlier; its offset is off by one element, by the alignment or
// by its own size, up or down. A mutation is left out when it is harmless by a criterion that shares no code with the planner or the
// shadow: a moved tensor is still aligned and inside the arena, and every other tensor of its class whose (unmutated) life meets its own
// lies elsewhere. Shortened lives are never harmless, because every first and last moment is a use of the tensor or demanded by its Life.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "host/proofs/shadow.hpp"
#include "tests/plan/models.hpp"

namespace galley {
namespace {

bool harmless_move(const Program& program, const Plan& plan, const Target& target, size_t moved, int64_t offset) {
  const ProgramTensor& tensor = program.tensors[moved];
  if (offset % target.memories[tensor.memory].alignment != 0 || offset < 0 || offset + tensor.bytes > plan.classes[tensor.memory].planned)
    return false;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    if (t == moved || program.tensors[t].memory != tensor.memory || plan.placements[t].first < 0) continue;
    const Placement &a = plan.placements[t], &b = plan.placements[moved];
    if (a.last < b.first || b.last < a.first) continue;
    if (a.offset < offset + tensor.bytes && offset < a.offset + program.tensors[t].bytes) return false;
  }
  return true;
}

TEST(Mutations, AreRejected) {
  const Target target = models::two_classes();
  constexpr const char* kinds[] = {"ends earlier", "begins later",   "element up", "element down",
                                   "alignment up", "alignment down", "size up",    "size down"};
  int tried[8] = {}, seen_by_run[8] = {}, harmless = 0, programs = 0;
  for (uint64_t seed = 1000; programs < 60; ++seed) {
    models::Spec spec = models::random_spec(seed);
    spec.layers = 1 + static_cast<int64_t>(seed % 3);
    const Program program = models::build(spec);
    const Plan plan = make_plan(program, target);
    ASSERT_TRUE(check_plan(program, plan, target).ok()) << "seed " << seed << ": " << models::text(spec);
    ++programs;
    std::mt19937_64 random(seed);
    for (int i = 0; i < 64; ++i) {
      const auto kind = static_cast<size_t>(i) % 8;
      size_t t = random() % program.tensors.size();
      while (plan.placements[t].first < 0 || (kind >= 2 && program.tensors[t].bytes == 0)) t = random() % program.tensors.size();
      const ProgramTensor& tensor = program.tensors[t];
      Plan mutant = plan;
      Placement& at = mutant.placements[t];
      const int64_t sizes[] = {galley_dtype_bytes(tensor.dtype), target.memories[tensor.memory].alignment, tensor.bytes};
      if (kind == 0) --at.last;
      if (kind == 1) ++at.first;
      if (kind >= 2) {
        at.offset += kind % 2 ? -sizes[kind / 2 - 1] : sizes[kind / 2 - 1];
        if (harmless_move(program, plan, target, t, at.offset)) {
          ++harmless;
          continue;
        }
      }
      ++tried[kind];
      const bool found = !check_plan(program, mutant, target).ok();
      // An offset that is off in itself (negative, beyond the arena) is for the layout's check only.
      seen_by_run[kind] += !run_shadow(program, mutant, target).ok();
      EXPECT_TRUE(found) << "seed " << seed << ": " << models::text(spec) << "\n'" << tensor.name << "' " << kinds[kind];
    }
  }
  for (size_t kind = 0; kind < 8; ++kind) {
    std::printf("[   INFO   ] %-15s %d rejected, %d by the run alone\n", kinds[kind], tried[kind], seen_by_run[kind]);
    // Of each kind enough were harmful, and the run alone sees what no rule about layouts says: who touches what when.
    EXPECT_GT(tried[kind], 200) << kinds[kind];
    EXPECT_GT(seen_by_run[kind], tried[kind] / 4) << kinds[kind];
  }
  std::printf("[   INFO   ] %d plans, %d harmless mutations left out\n", programs, harmless);
}

}  // namespace
}  // namespace galley
