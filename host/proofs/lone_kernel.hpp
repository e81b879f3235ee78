// Runs a kernel by itself: one node, one launch, on an open device of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/plan/target.hpp"
#include "host/proofs/gradients.hpp"

namespace galley {

/// The result of a kernel for a node.
struct KernelRun {
  std::string refused;                        ///< why the kernel does not take the node; "": it does
  std::string failed;                         ///< what it did wrong besides numbers, of which there are none then; "": nothing
  bool varies = false;                        ///< it says that its bytes may differ from run to run
  Values inputs, outputs;                     ///< as the kernel has left them
  std::vector<std::vector<std::byte>> bytes;  ///< bytes of outputs, and of inputs that it updates
};

/// Queries, prepares, launches and releases a kernel. Each `place` 0, 1, … has other addresses. Outputs, workspace and constants begin as
/// NaN. Only one at a time. An error is the device's or the host's. [main-thread]
Result<KernelRun> run_kernel(const galley_kernel& kernel, const LoneNode& node, const Values& outputs, const Target& target,
                             const galley_device& device, int place);

/// The distance of a kernel's numbers from those of the reference, as a share of the bound that numbers.hpp gives them, and where it is.
struct KernelError {
  double share = 0;
  std::string operand;
  Worst worst;
};
Result<KernelError> kernel_error(const LoneNode& node, const Values& outputs, const KernelRun& run);

}  // namespace galley
