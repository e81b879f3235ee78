// The tests of `galley check`: each looks at one thing of a plugin, in a process of its own (processes.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "host/plan/target.hpp"
#include "host/plugins/loader.hpp"
#include "host/session/study.hpp"
#include "host/tools/check/findings.hpp"

namespace galley {

/// A flag that no version of the ABI knows yet, of those that have to be understood.
inline constexpr uint64_t kUnknownFlag = UINT64_C(1) << 30;

/// A device that kernels are tried on.
struct CheckDevice {
  const galley_device* table = nullptr;
  Target target;
  std::string label;      ///< " on cuda (emulated)": after a kernel's name; "": the processor
  bool emulated = false;  ///< the SDK's GPU that is none
};

/// What tests are given.
struct CheckContext {
  Plugins& plugins;
  Plugin& plugin;  ///< one of them, and loaded but for the test "library"
  uint64_t seed = 1;
  const StudyOptions& study;      ///< for recipes with it
  double seconds = 20;            ///< that a test of kernels may take before it leaves something out
  std::filesystem::path scratch;  ///< a folder for a test's own files; there, and empty
};

/// Finds the devices that a plugin, which is loaded, has kernels for. The first is the processor. For GPUs without one here, or without
/// kernels that nvcc has built, that is the emulated one, if `plugins` has it. An error: there is no processor.
Result<std::vector<CheckDevice>> check_devices(Plugins& plugins, const Plugin& plugin);

/// Every option of the manifest is asked for, but for `but`, and no other.
void check_asked(const StrategySpec& spec, const std::set<std::string>& asked, const std::string& but, TestLog& log);

/// The first test, which lists all others: it loads the plugin.
inline constexpr const char* kLibraryTest = "library";

/// Runs a test by its name. What the plugin does wrong is a finding; an error is somebody else's fault. [main-thread]
Status run_check(const CheckContext& context, const std::string& name, TestLog& log);

// The tests, by the first word of their names.
Status check_library(const CheckContext& context, TestLog& log);
Status check_op(const CheckContext& context, const galley_op& op, TestLog& log);
Status check_kernels(const CheckContext& context, const std::string& op, TestLog& log);
Status check_format(const CheckContext& context, const galley_format& format, TestLog& log);
Status check_source(const CheckContext& context, const StrategySpec& source, TestLog& log);
Status check_strategy(const CheckContext& context, const StrategySpec& strategy, TestLog& log);
Status check_listener(const CheckContext& context, const LoadedStrategy& strategy, TestLog& log);
Status check_training(const CheckContext& context, const StrategySpec& strategy, TestLog& log);
Status check_ranks(const CheckContext& context, const galley_ranks& ranks, TestLog& log);

}  // namespace galley
