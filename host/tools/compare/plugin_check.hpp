// Checks a plugin's ops on the test cases that they declare: gradient rules by finite differences of the reference, roles by parts of the
// rows, and kernels of the processor by the reference.
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

struct PluginCheckOptions {
  uint64_t seed = 1;
  std::function<void(const CheckedCase&)> after = {};  ///< told of each case once it has been looked at
};

/// Checks a plugin, which must be one of `plugins` and loaded. What the plugin does wrong is a finding; an error is somebody else's fault.
/// [main-thread]
Result<PluginCheck> check_plugin(Plugins& plugins, Plugin& plugin, const Target& target, const PluginCheckOptions& options = {});

/// "reglu2  small: gradient of a, b; kernel 'reglu2.cpu'": a line for a case, and one for each finding; findings in `red` … `plain`.
std::string case_text(const CheckedCase& checked, const char* red = "", const char* plain = "");
/// What was not looked at, and the sum of it all.
std::string summary_text(const PluginCheck& check, const char* red = "", const char* plain = "");
std::string check_json(const PluginCheck& check);

}  // namespace galley
