// Launches of several nodes, and the kernels that take them. `fuse` and `decide` use it.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "host/passes/alias.hpp"
#include "host/passes/compilation.hpp"

namespace galley {

/// Marks an operand of a chain: its number between links (Operand::inner), and whether it has lost its memory.
struct Mark {
  uint32_t inner = 0;
  bool gone = false;
};

/// Entries of a segment that are to become one launch, chain by chain.
struct PlannedLaunch {
  std::vector<uint32_t> entries;
  size_t links = 1;
  std::vector<Mark> marks;               ///< marks of a chain's operands: all nodes' inputs, then all outputs; empty for a group of nodes
  const KernelChoice* choice = nullptr;  ///< null: the entry as it is
};

/// Returns the position of each input of the nodes among the inputs of the instruction that joins them, node by node. Components of formats
/// come after all other inputs.
std::vector<size_t> joined_inputs(const std::vector<const Instruction*>& nodes);
/// Returns the instruction that does several nodes; the caller adds its kernel and workspace.
Instruction join(const std::vector<const Instruction*>& nodes, const PlannedLaunch& launch);

/// The instructions that the entries of a segment are, or are clones of. A clone differs in its tensors only.
struct Originals {
  std::vector<const Instruction*> instructions;
  std::vector<bool> recomputed;
};

/// Finds kernels for launches of several nodes, and remembers the answer for all nodes of one kind.
class Joints {
 public:
  explicit Joints(Compilation& c) : c_(c) {}
  struct Joint {
    const KernelChoice* choice = nullptr;
    std::vector<TakeOver> take_overs;
  };
  /// Returns the nodes as one launch.
  Result<const Joint*> joint(const std::vector<const Instruction*>& nodes, const PlannedLaunch& launch);
  /// Returns what the instruction may take over if it is not joined.
  const std::vector<TakeOver>& alone(const Instruction* i);

 private:
  Compilation& c_;
  std::map<std::vector<uint64_t>, Joint> joints_;
  std::unordered_map<const Instruction*, std::vector<TakeOver>> alone_;
};

}  // namespace galley
