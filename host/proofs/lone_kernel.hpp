// Runs a kernel by itself: one node, one launch, on an open device of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/plan/target.hpp"
#include "host/proofs/fenced.hpp"
#include "host/proofs/gradients.hpp"

namespace galley {

/// How a kernel is launched, beside the usual way.
struct LaunchWay {
  int place = 0;           ///< each 0, 1, … has other addresses
  bool adds = false;       ///< outputs that kernels can add into are added to
  bool in_place = false;   ///< an output lies where the input lies whose buffer it may reuse
  bool beside = false;     ///< another node like it is prepared meanwhile, at addresses of its own, and released first
  int group = 0;           ///< in one launch with another node of other numbers: 1 before it, 2 after it
  int launches = 1;        ///< from one `prepare`, each on the same operands
  Edge edge = Edge::None;  ///< on the processor: each operand lies alone, and is fenced there
};

/// The result of a kernel for a node.
struct KernelRun {
  std::string refused;                        ///< why the kernel does not take the node; "": it does
  std::string failed;                         ///< what it did wrong besides numbers, of which there are none then; "": nothing
  bool varies = false;                        ///< it says that its bytes may differ from run to run
  bool goes_on = false;                       ///< of several launches: something has been written after the last one has come back
  bool unsteady = false;                      ///< a later launch has left other bytes than the first
  int64_t left = 0;                           ///< bytes of the process's own memory that each later launch has left
  Values inputs, outputs;                     ///< as the kernel has left them
  Values begins;                              ///< what outputs were added to
  std::vector<std::vector<std::byte>> bytes;  ///< bytes of outputs, and of inputs that it updates
};

/// Queries, prepares, launches and releases a kernel. Outputs, workspace and constants begin as NaN. An error is the device's or the
/// host's. [thread-safe], if the device is
Result<KernelRun> run_kernel(const galley_kernel& kernel, const LoneNode& node, const Values& outputs, const Target& target,
                             const galley_device& device, const LaunchWay& way = {});
/// Whether a way is another one than the usual for this node.
bool adds_into(const LoneNode& node, const Values& outputs);
bool reuses_inputs(const LoneNode& node, const Values& outputs);

/// The distance of a kernel's numbers from those of the reference, as a share of the bound that numbers.hpp gives them, and where it is.
struct KernelError {
  double share = 0;
  std::string operand;
  Worst worst;
};
Result<KernelError> kernel_error(const LoneNode& node, const Values& outputs, const KernelRun& run);

}  // namespace galley
