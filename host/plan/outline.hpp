// The outline of a program, which is all that the planner reads: who touches which tensor when, and how many bytes it has. An outline is a
// hundredth of its program, so that a strategy which searches can ask for hundreds of peaks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "host/plan/program.hpp"

namespace galley {

struct Outline {
  struct Tensor {
    int64_t bytes = 0;
    uint32_t memory = 0;
    Life life = Life::Segment;
  };
  /// An instruction in the outline.
  struct Entry {
    Action action = Action::Launch;
    uint32_t queue = 0;
    uint32_t event = 0;
    uint32_t begin = 0, end = 0;  ///< the range of its tensors in `touched`
  };
  /// The instructions of a segment.
  struct Code {
    std::vector<Entry> entries;
    std::vector<TensorId> touched;  ///< for each entry: inputs, outputs, workspace; absent operands are left out
    std::span<const TensorId> of(const Entry& entry) const { return {touched.data() + entry.begin, touched.data() + entry.end}; }
  };
  std::array<Code, segment_count> segments;
  std::vector<Tensor> tensors;
  int64_t micro_batches = 1;           ///< of a window, that this process runs
  std::vector<TensorId> read_by_host;  ///< the host reads these when their segment (for a window's tensors: the step) is over
};

Outline outline_of(const Program& program);
/// Returns the entries of one segment.
Outline::Code outline_of(const Segment& segment);

/// Calls `visit` with the id of each tensor that an instruction touches, in the order of Outline::Code::touched.
template <class I, class Visit>
void visit_touched(I& instruction, const Visit& visit) {
  for (auto* operands : {&instruction.inputs, &instruction.outputs})
    for (auto& o : *operands)
      if (o.present()) visit(o.tensor);
  if (auto* launch = instruction.launch(); launch && launch->workspace != no_tensor) visit(launch->workspace);
}

/// Returns new numbers for tensors, by which programs that differ only in their numbers become the same: first, in their present order, the
/// tensors that live for the run or a window, then the others by their first use. Element i is the new number of tensor i; no_tensor if it
/// is of a segment and nothing uses it.
std::vector<TensorId> canonical_numbers(const Outline& outline);
/// Applies new numbers.
void renumber(Outline& outline, const std::vector<TensorId>& numbers);
void renumber(Program& program, const std::vector<TensorId>& numbers);

}  // namespace galley
