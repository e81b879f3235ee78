// The target: the machine for which a plan is made. A plan is a function of recipe, model configuration and target alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
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
  int64_t capacity = 0;         ///< bytes; 0: not known
  double in_bandwidth = 1e10;   ///< bytes a second from here to class 0; for class 0, its own bandwidth
  double out_bandwidth = 1e10;  ///< bytes a second from class 0 to here
  friend bool operator==(const MemoryClass&, const MemoryClass&) = default;
};

/// The purpose of a queue. Copies run on compute queues too.
enum class Queue : uint8_t {
  Compute = GALLEY_QUEUE_COMPUTE,
  In = GALLEY_QUEUE_IN,             ///< copies towards class 0
  Out = GALLEY_QUEUE_OUT,           ///< copies away from class 0
  Exchange = GALLEY_QUEUE_EXCHANGE  ///< exchanges with other processes
};

/// The matrix peak of one arithmetic: "f32", "bf16", …
struct Peak {
  std::string name;
  double flops = 0;
  friend bool operator==(const Peak&, const Peak&) = default;
};

/// The use of a memory class as the system sees it: bytes that all processes have taken together, and bytes that there are.
struct MemoryUse {
  int64_t taken = 0, capacity = 0;
};

/// A library that kernels may call.
struct LibraryVersion {
  std::string name, version;
  friend bool operator==(const LibraryVersion&, const LibraryVersion&) = default;
};

/// What connects the processes of a run.
struct Link {
  std::string name;      ///< "nvlink", "network"
  int64_t ranks = 0;     ///< how many processes it joins; 0: all
  double bandwidth = 0;  ///< bytes a second that one of them sends while it receives as many
  double latency = 0;    ///< seconds of an exchange of no bytes between two of them
  bool joins(int64_t n) const { return ranks == 0 || n <= ranks; }
  friend bool operator==(const Link&, const Link&) = default;
};

struct Target {
  std::string device = "cpu";
  std::string isa;
  int64_t threads = 1;
  int64_t workspace_budget = 256 << 20;       ///< bytes one kernel may ask for
  std::vector<Peak> peaks = {{"f32", 1e11}};  ///< sorted by name, as libraries are
  std::vector<MemoryClass> memories;          ///< class 0 computes
  std::vector<LibraryVersion> libraries;
  std::vector<Link> links;                       ///< the nearest first, each joins more processes than the one before it; none: not known
  std::vector<Queue> queues = {Queue::Compute};  ///< queue 0 computes
  bool synchronous = false;                      ///< a call returns when its work is done: the host gains nothing by running ahead
  int64_t memory_limit = 0;                      ///< bytes that the plan may take of the memory that computes; 0: not limited
  bool deterministic = true;                     ///< the recipe's wish, no property of the machine

  /// Returns how many steps may be under way at a time: for a device that works by itself, the host prepares the next one.
  int64_t steps_under_way() const { return synchronous ? 1 : 2; }
  /// Returns operations a second; if the target does not list the arithmetic, those of F32.
  double peak_flops(std::string_view arithmetic = "f32") const;
  /// Returns "bf16 16": how much faster than in F32 products are in each other arithmetic. It tells kernels which instructions there are.
  std::string products() const;
  /// Returns the first queue of a role, or queue 0 if there is none.
  uint32_t queue_for(Queue role) const;
  /// Returns the first class that the host reads and writes directly: staging, the loader's windows and the corpus lie there.
  uint32_t host_memory() const;
  /// Returns whether the device is the processor, in memory that the host reaches.
  bool is_processor() const { return device == "cpu" && !memories.empty() && memories[0].host_access; }
  /// Returns the nearest link that joins so many processes; null: none is known.
  const Link* link_for(int64_t ranks) const;
  /// Returns the target as kernels see it that the host runs beside a device: this processor, and otherwise the same.
  Target of_host() const;
  /// Returns the bandwidth of class 0, bytes a second.
  double bandwidth() const { return memories.empty() ? 1e10 : memories[0].in_bandwidth; }
  friend bool operator==(const Target&, const Target&) = default;
};

/// Shows a target to kernels.
class TargetView {
 public:
  explicit TargetView(Target target);
  TargetView(const TargetView&) = delete;
  TargetView& operator=(const TargetView&) = delete;
  const galley_target* get() const { return &view_; }

 private:
  const Target target_;
  std::vector<galley_peak> peaks_;
  std::vector<galley_target_memory> memories_;
  std::vector<galley_library> libraries_;
  std::vector<galley_link> links_;
  std::vector<const galley_peak*> peak_pointers_;
  std::vector<const galley_target_memory*> memory_pointers_;
  std::vector<const galley_library*> library_pointers_;
  std::vector<const galley_link*> link_pointers_;
  galley_target view_ = {};
};

/// Returns the names of the targets that come with the program, in alphabetical order: of the TOML files in `shipped`.
std::vector<std::string> target_names(const std::filesystem::path& shipped);

/// Finds the file of a target for --target: a file, or one of the targets that come with the program ("h100" is h100.toml in `shipped`). A
/// name that is neither is an error with the names that there are, exit code Recipe.
Result<std::filesystem::path> find_target(const std::string& name, const std::filesystem::path& shipped);

/// Reads a TOML file that says all that a plan depends on: device, isa, threads, peak_flops, queues, synchronous, memory. Nothing is then
/// asked of the machine that Galley runs on. Returns nothing if the file overrides parts of another target (read_target).
Result<std::optional<Target>> read_whole_target(const std::filesystem::path& path);

/// Asks `device` to describe this machine. A device that cannot, or whose answer makes no sense, is exit code Plugin. [plan-time]
Result<Target> describe_target(const galley_device& device);

/// Reads a TOML file that overrides parts of `base`. Keys are the fields of Target. `peak_flops` is a number (of F32) or a table, { f32 =
/// 1e12, bf16 = 2e12 }; `libraries` is a table of versions, { cublaslt = "13.0" }. Tables [[memory]] (name, alignment, host_access,
/// computes, capacity, in_bandwidth, out_bandwidth) replace all classes of `base`; without them `bandwidth` sets that of class 0,
/// `link_bandwidth` that of the others. Tables [[link]] (name, ranks, bandwidth, latency) replace all links of `base`; a text with
/// [[memory]] and without [[link]] describes another machine, and has none. Unknown keys, wrong types and values out of range are errors
/// with file and line, exit code Recipe.
Result<Target> read_target(const std::filesystem::path& path, Target base);
/// Does the same from text; `origin` names the file in messages.
Result<Target> parse_target(std::string_view text, std::string_view origin, Target base);

/// Returns the target as TOML, for run.toml: parse_target makes an equal target of it, whatever its base.
std::string target_toml(const Target& target);

}  // namespace galley
