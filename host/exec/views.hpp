// Shows a program to kernels: operands with their final addresses, and the nodes made of them, in one block that lives as long as the run.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "host/exec/machine.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// Immutable once built. Points into the program, which must neither change nor move while this lives.
class NodeViews {
 public:
  /// Makes views of every kernel instruction, in the order of segments and instructions.
  NodeViews(const Program& program, const Machine& machine);
  NodeViews(const NodeViews&) = delete;
  NodeViews& operator=(const NodeViews&) = delete;

  /// The nodes of an instruction.
  struct Pair {
    const galley_node_view* const* first = nullptr;
    const galley_node_view* const* later = nullptr;  ///< for the second and later micro-batches; the same as `first` if nothing differs
    uint32_t n = 0;
  };
  /// Returns the nodes of an instruction: none if it is no kernel.
  Pair of(SegmentKind kind, size_t index) const { return pairs_[static_cast<size_t>(kind)][index]; }

 private:
  const galley_node_view* const* build(const Program& program, const Machine& machine, const Instruction& code, bool later);
  const galley_operand* build(const Program& program, const Machine& machine, const Operand& operand, bool later);

  // Sized before the first view is built, so that nothing moves afterwards.
  std::vector<galley_operand> operands_;
  std::vector<const galley_operand*> operand_pointers_;
  std::vector<const galley_attr*> attr_pointers_;
  std::vector<galley_node_view> views_;
  std::vector<const galley_node_view*> view_pointers_;
  std::deque<std::string> between_;  ///< names of operands without memory
  std::array<std::vector<Pair>, segment_count> pairs_;
};

}  // namespace galley
