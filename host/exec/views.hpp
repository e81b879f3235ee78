// What kernels see of a program: operands with their final addresses and the nodes made of them, all in one block that lives as long as the
// run.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "host/exec/machine.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// Immutable once built. Points into the program, which neither changes nor moves meanwhile.
class NodeViews {
 public:
  /// Views of every kernel instruction, in the order of segments and instructions.
  NodeViews(const Program& program, const Machine& machine);
  NodeViews(const NodeViews&) = delete;
  NodeViews& operator=(const NodeViews&) = delete;

  /// The nodes of an instruction.
  struct Pair {
    const galley_node_view* const* first = nullptr;
    const galley_node_view* const* later = nullptr;  ///< of the second and later micro-batches; the same as `first` where nothing differs
    uint32_t n = 0;
  };
  /// None for instructions that are no kernels.
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
