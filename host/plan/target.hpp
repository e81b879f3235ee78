// The machine that a plan is made for. A plan is a function of recipe, model configuration and target alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "galley/device.h"
#include "host/base/result.hpp"

namespace galley {

struct MemoryClass {
  std::string name;        ///< "host", "spill"
  int64_t alignment = 64;  ///< bytes, a power of two
  bool host_access = true;
  bool computes = true;
  friend bool operator==(const MemoryClass&, const MemoryClass&) = default;
};

struct Target {
  std::string device = "cpu";
  std::string isa;
  int64_t threads = 1;
  int64_t workspace_budget = 256 << 20;  ///< bytes one kernel may ask for
  double peak_flops = 1e11;
  double bandwidth = 2e10;  ///< bytes a second
  double link_bandwidth = 1e10;
  std::vector<MemoryClass> memories;  ///< class 0 computes
  uint32_t queues = 1;
  int64_t memory_limit = 0;  ///< bytes that the plan may take in all; 0: not limited

  /// For kernels' `query` and `prepare`; strings live as long as this target.
  galley_target view() const;
  friend bool operator==(const Target&, const Target&) = default;
};

/// The target that `device` describes: this machine. A device that cannot say, or says what makes no sense, is exit code Plugin.
/// [plan-time]
Result<Target> describe_target(const galley_device& device);

/// Overrides from a TOML file. Keys are the fields of Target; tables [[memory]] (name, alignment, host_access, computes) replace all
/// classes of `base`. Unknown keys, wrong types and values out of range are errors with file and line, exit code Recipe.
Result<Target> read_target(const std::filesystem::path& path, Target base);
/// The same from text; `origin` stands for the file in messages.
Result<Target> parse_target(std::string_view text, std::string_view origin, Target base);

/// As TOML, for run.toml: parse_target makes an equal target of it, whatever its base.
std::string target_toml(const Target& target);

}  // namespace galley
