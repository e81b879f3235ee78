// Runs a kernel by itself: one node or one chain, one launch, on an open device of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/plan/target.hpp"
#include "host/proofs/fenced.hpp"
#include "host/proofs/gradients.hpp"

namespace galley {

/// How an input is stored whose numbers are in a format: its options, its codec, what its components are.
struct LoneFormat {
  OperandFormat format;
  FormatOps ops;
  Values components;
};

/// What one launch computes: a node, or the links of a chain. It points to the nodes and to what their references make of them.
struct LoneLaunch {
  struct Link {
    const LoneNode* node;
    const Values* outputs;
    size_t reads = 0;  ///< but of the first: the input that the link before makes, as its output 0, or as the input 0 that it updates
    std::vector<std::pair<size_t, const LoneFormat*>> formats = {};  ///< inputs that are in a format
  };
  std::vector<Link> links;
  bool kept = true;  ///< what lies between two links has memory; what a link updates always has

  LoneLaunch(const LoneNode& node, const Values& outputs) : links({{&node, &outputs}}) {}
  LoneLaunch(std::vector<Link> chain, bool is_kept) : links(std::move(chain)), kept(is_kept) {}
};

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

/// The result of a kernel for a launch. Operands are those of all nodes, one node after the other.
struct KernelRun {
  std::string refused;                        ///< why the kernel does not take the nodes; "": it does
  std::string failed;                         ///< what it did wrong besides numbers, of which there are none then; "": nothing
  bool varies = false;                        ///< it says that its bytes may differ from run to run
  bool goes_on = false;                       ///< of several launches: something has been written after the last one has come back
  bool unsteady = false;                      ///< a later launch has left other bytes than the first
  int64_t left = 0;                           ///< bytes of the process's own memory that each later launch has left at least
  Values inputs, outputs;                     ///< as the kernel has left them; nothing for what has no memory
  Values begins;                              ///< what outputs were added to
  std::vector<std::vector<std::byte>> bytes;  ///< bytes of outputs, and of inputs that it updates
};

/// Queries, prepares, launches and releases a kernel. Outputs, workspace and constants begin as NaN. An error is the device's or the
/// host's. [thread-safe], if the device is
Result<KernelRun> run_kernel(const galley_kernel& kernel, const LoneLaunch& launch, const Target& target, const galley_device& device,
                             const LaunchWay& way = {});
/// Whether a way is another one than the usual for this node.
bool adds_into(const LoneNode& node, const Values& outputs);
bool reuses_inputs(const LoneNode& node, const Values& outputs);

/// The distance of a kernel's numbers from those of the reference, as a share of the bound that numbers.hpp gives them, and where it is.
struct KernelError {
  double share = 0;
  std::string operand;
  Worst worst;
};
Result<KernelError> kernel_error(const LoneLaunch& launch, const KernelRun& run);

}  // namespace galley
