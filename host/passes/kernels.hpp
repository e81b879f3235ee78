// Chooses the kernel of an instruction, for the passes that bind or join instructions.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/passes/compile_options.hpp"
#include "host/passes/strategies.hpp"
#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// A kernel and the memory that it asks for; without a kernel, `refusals` says why none serves.
struct KernelChoice {
  const galley_kernel* kernel = nullptr;
  const Plugin* plugin = nullptr;  ///< whose kernel it is
  int64_t workspace = 0;
  int64_t constants = 0;
  bool capturable = true;
  bool varies = false;
  int64_t priority = 0;
  std::string refusals;
};

/// Gives an instruction the chosen kernel, and makes its workspace and constants in a memory class.
void give(Program& program, Instruction& instruction, const KernelChoice& choice, uint32_t memory = 0);

/// Asks each kernel once for each kind of instruction and remembers the answer.
class Kernels {
 public:
  /// Any plugin's kernels may serve its own ops. Other plugins' ops are served by kernels of plugins that came with the program, that the
  /// recipe uses or asks for, and by the device's own.
  Kernels(Plugins& plugins, Strategies strategies, const Target& target, const CompileOptions& options, int64_t length);

  /// Returns the best kernel for an instruction. `query` is shown the heavier of each operand's two accesses, so that a kernel that cannot
  /// add is not chosen for a gradient.
  Result<const KernelChoice*> choose(const Instruction& instruction, const std::vector<ProgramTensor>& tensors);

  /// Returns what makes a format's numbers on the target; null: nothing.
  const galley_codec* codec(const std::string& format);

  /// Returns the chains for which there are kernels, as lists of ops: longer ones first, then by name.
  const std::vector<std::vector<std::string>>& chains();
  /// Returns whether some kernel of this op or chain ("a>b") takes groups.
  bool takes_groups(const std::string& op);
  bool takes_groups(const galley_op* op);

 private:
  bool admitted(const Plugin& plugin, const Instruction& instruction);
  std::string unknown_to(const Registered<galley_kernel>& kernel, const Instruction& instruction, const LaunchNode& node);

  Plugins& plugins_;
  const Target& target_;
  int64_t length_;
  std::string exchanges_;  ///< the plugin that has joined the processes; "": none has
  std::function<bool(const Plugin&)> admits_;
  std::map<std::string, KernelChoice> chosen_;
  std::optional<std::vector<std::vector<std::string>>> chains_;
  std::map<std::string, const galley_codec*> codecs_;  ///< by format
  std::map<std::string, bool> takes_groups_;
  std::map<const galley_op*, bool> ops_take_groups_;  ///< the same by the op's table, which is faster to look up
};

}  // namespace galley
