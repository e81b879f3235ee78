// Which kernel does an instruction.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "host/passes/compile.hpp"
#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// A kernel and the workspace it asked for; no kernel: why none serves.
struct KernelChoice {
  const galley_kernel* kernel = nullptr;
  const Plugin* plugin = nullptr;  ///< whose kernel it is
  int64_t workspace = 0;
  std::string refusals;
};

/// Asks each kernel once for each kind of instruction and remembers the answer.
class Kernels {
 public:
  /// Kernels of these plugins may do ops of others: those that came with the program, that the recipe uses or asks for, and the device's
  /// own.
  Kernels(Plugins& plugins, Strategies strategies, const Target& target, const CompileOptions& options, int64_t length);

  /// The best kernel for an instruction. `query` is shown the heavier of each operand's two accesses: a kernel that cannot add is none for
  /// a gradient.
  Result<const KernelChoice*> choose(const Instruction& instruction, const std::vector<ProgramTensor>& tensors);

 private:
  bool admitted(const Plugin& plugin, const galley_op* op);

  Plugins& plugins_;
  const Target& target_;
  int64_t length_;
  std::function<bool(const Plugin&)> admits_;
  std::map<std::string, KernelChoice> chosen_;
};

}  // namespace galley
