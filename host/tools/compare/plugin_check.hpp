// Checks a plugin's ops on the test cases that they declare: gradient rules by finite differences of the reference, roles by parts of the
// rows, and kernels by the reference, on the devices that are here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "host/plan/target.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

struct PluginFinding {
  std::string op, example;  ///< whose test case
  std::string operand;      ///< "input 1 ('weight')"; "": the op as a whole
  double size = 0;          ///< of the difference: a share of what is right, or of a bound
  std::string sentence;     ///< what was seen
  std::string rule;         ///< the sentence of the headers that it breaks
};

/// A test case of an op.
struct CheckedCase {
  std::string op, example;
  std::vector<std::string> held;  ///< "gradient of x, weight", "kernel 'gelu.vector'"
  std::vector<PluginFinding> findings;
};

struct PluginCheck {
  std::string id, folder;
  std::vector<CheckedCase> cases;
  std::vector<std::string> unchecked;  ///< what was not looked at, and why
  int64_t findings() const;
};

/// A device that kernels are tried on.
struct CheckDevice {
  const galley_device* table = nullptr;
  Target target;
  std::string label;      ///< " on cuda (emulated)": after a kernel's name; "": the processor
  bool emulated = false;  ///< the SDK's GPU that is none
};

/// Finds the devices that a plugin, which is loaded, has kernels for. The first is the processor. For GPUs without one here, or without
/// kernels that nvcc has built, that is the emulated one, if `plugins` has it. An error: there is no processor.
Result<std::vector<CheckDevice>> check_devices(Plugins& plugins, const Plugin& plugin);

struct PluginCheckOptions {
  uint64_t seed = 1;
  std::function<void(const CheckedCase&)> after = {};  ///< told of each case once it has been looked at
};

/// Checks a plugin, which must be one of `plugins` and loaded. What the plugin does wrong is a finding; an error is somebody else's fault.
/// [main-thread]
Result<PluginCheck> check_plugin(Plugins& plugins, Plugin& plugin, const std::vector<CheckDevice>& devices,
                                 const PluginCheckOptions& options = {});

/// "reglu2  small: gradient of a, b; kernel 'reglu2.cpu'": a line for a case, and one for each finding; findings in `red` … `plain`.
std::string case_text(const CheckedCase& checked, const char* red = "", const char* plain = "");
/// What was not looked at, and the sum of it all.
std::string summary_text(const PluginCheck& check, const char* red = "", const char* plain = "");
std::string check_json(const PluginCheck& check);

}  // namespace galley
