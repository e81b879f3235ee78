// A kernel of the processor by itself: one node, one launch, in memory of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/plan/target.hpp"
#include "host/proofs/gradients.hpp"

namespace galley {

/// What a kernel has made of a node.
struct KernelRun {
  std::string refused;                        ///< why the kernel does not take the node; "": it does
  bool varies = false;                        ///< it says that it may have other bytes in another run
  Values inputs, outputs;                     ///< as it left them
  std::vector<std::vector<std::byte>> bytes;  ///< of outputs, and of inputs that it updates
};

/// Queries, prepares, enqueues and releases it, for a target of a device that works at once. `place` 0, 1, …: at other addresses each.
/// Outputs, workspace and constants begin as NaN. Only one at a time. [main-thread]
Result<KernelRun> run_kernel(const galley_kernel& kernel, const LoneNode& node, const Values& outputs, const Target& target, int place);

/// How far a kernel's numbers are from those of the reference, as a share of the bound that numbers.hpp gives them; and where.
struct KernelError {
  double share = 0;
  std::string operand;
  Worst worst;
};
Result<KernelError> kernel_error(const LoneNode& node, const Values& outputs, const KernelRun& run);

}  // namespace galley
