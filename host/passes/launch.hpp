// A launch of several nodes, and the kernel that takes it.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "host/passes/alias.hpp"
#include "host/passes/compilation.hpp"

namespace galley {

/// How a chain sees an operand: as `Operand::inner` says, and whether it has lost its memory.
struct Mark {
  uint32_t inner = 0;
  bool gone = false;
};

/// Entries of a segment that become one instruction, chain by chain.
struct Launch {
  std::vector<uint32_t> entries;
  size_t links = 1;
  std::vector<Mark> marks;               ///< of a chain's operands: all nodes' inputs, then all outputs; empty for a group of nodes
  const KernelChoice* choice = nullptr;  ///< null: the entry as it is
};

/// Where each input of the nodes is among the inputs of the instruction that joins them, node by node: components of operands in formats
/// come after what all nodes read.
std::vector<size_t> joined_inputs(const std::vector<const Instruction*>& nodes);
/// The instruction that does several; its kernel and workspace are for the caller to add.
Instruction join(const std::vector<const Instruction*>& nodes, const Launch& launch);

/// The instructions that the entries of a segment are, or are clones of: alike but for tensors.
struct Originals {
  std::vector<const Instruction*> instructions;
  std::vector<bool> recomputed;
};

/// Asks once about nodes of one kind.
class Joints {
 public:
  explicit Joints(Compilation& c) : c_(c) {}
  struct Joint {
    const KernelChoice* choice = nullptr;
    std::vector<TakeOver> take_overs;
  };
  /// What the nodes are as one launch.
  Result<const Joint*> joint(const std::vector<const Instruction*>& nodes, const Launch& launch);
  /// What the instruction may take over as it is.
  const std::vector<TakeOver>& alone(const Instruction* i);

 private:
  Compilation& c_;
  std::map<std::vector<uint64_t>, Joint> joints_;
  std::unordered_map<const Instruction*, std::vector<TakeOver>> alone_;
};

}  // namespace galley
