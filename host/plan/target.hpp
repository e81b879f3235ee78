// The machine that a plan is made for. A plan is a function of recipe, model configuration and target alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "galley/device.h"
#include "host/base/result.hpp"

namespace galley {

struct MemoryClass {
  std::string name;           ///< "host", "spill"
  int64_t alignment = 64;     ///< bytes, a power of two
  bool host_access = true;
  bool computes = true;
};

struct Target {
  std::string device = "cpu";
  std::string isa;
  int64_t threads = 1;
  int64_t workspace_budget = 256 << 20;   ///< bytes one kernel may ask for
  double peak_flops = 1e11;
  double bandwidth = 2e10;                ///< bytes a second
  double link_bandwidth = 1e10;
  std::vector<MemoryClass> memories;      ///< class 0 computes
  uint32_t queues = 1;
  int64_t memory_limit = 0;               ///< bytes that the plan may take in all; 0: not limited

  /// For kernels' `query` and `prepare`; strings live as long as this target.
  galley_target view() const;
};

/// The target that `device` describes: this machine. [plan-time]
Result<Target> describe_target(const galley_device& device);

/// Overrides from a TOML file (keys as the fields above, [[memory]] for classes); unknown keys and wrong types are errors with file and line.
Result<Target> read_target(const std::filesystem::path& path, Target base);

/// As TOML, for run.toml.
std::string target_toml(const Target& target);

}  // namespace galley
