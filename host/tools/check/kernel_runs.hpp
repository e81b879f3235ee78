// The plugin's kernels of an op or a chain, where they can run: on each device and at each level that is here.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/plugins/host_table.hpp"
#include "host/proofs/lone_kernel.hpp"
#include "host/tools/check/tests.hpp"

namespace galley {

/// How a kernel is run once more: nothing of it may change a byte.
struct Again {
  LaunchWay way;
  int threads;        ///< of the processor; 0: as many as usual
  BlockOrder blocks;  ///< of what the kernel divides among threads
  const char* order;  ///< of the threads of an emulated block; null: the usual one
  const char* text;
  const char* rule;
};
const std::vector<Again>& ways_on(const CheckDevice& device);
/// In one launch with another node, or another chain, of other numbers: `at` 1 before it, 2 after it.
Again in_group(int at);

/// A kernel where it runs.
struct Placed {
  const galley_kernel* kernel;
  const CheckDevice* device;
  Target target;
  std::string name;  ///< "kernel 'gelu.cpu' for x86-64-v3"
};

/// Runs them on one case after the other, and writes down what is wrong. [main-thread]
class KernelRuns {
 public:
  /// `op`: or a chain, "add>rms_norm". Levels that this machine lacks are written down. `devices` and `log` live as long.
  KernelRuns(const CheckContext& context, const std::string& op, const std::vector<CheckDevice>& devices, TestLog& log);

  const std::vector<Placed>& placed() const { return placed_; }
  /// What is run from now on: "case 'small'".
  void begin(std::string where) { where_ = std::move(where); }
  /// Whether a kernel has ended the device, on which nothing can be run any more.
  bool ended(const CheckDevice& device) const { return ended_.contains(&device); }
  /// Whether the test has taken so many times the time that it has.
  bool late(double times = 1) const;
  /// After all: which kernels take formats, and which have taken nothing: "it takes no case of 'gelu' here".
  void end(const std::string& what) const;

  /// Runs a kernel as usual; none: it does not take that, or something is wrong.
  Result<std::optional<KernelRun>> run(const Placed& p, const LoneLaunch& launch, const std::string& what);
  /// Runs it in this way, with the processor's usual threads.
  static Result<KernelRun> run(const Placed& p, const LoneLaunch& launch, const LaunchWay& way);
  /// Runs it once more. False: something is wrong.
  Result<bool> same_again(const Placed& p, const LoneLaunch& launch, const KernelRun& first, const Again& way, const std::string& what);
  /// Runs a kernel that takes formats with each input of the first node in each format in which it takes that.
  Status check_formats(const Placed& p, const LoneLaunch& launch);
  /// Holds its numbers against the references'. `how`: ", where it adds to an output".
  Status check_numbers(const Placed& p, const LoneLaunch& launch, const KernelRun& run, const std::string& what, const std::string& how,
                       const char* rule);
  /// Writes down what is wrong, of a kernel and a rule once: other cases say the same.
  void find(const Placed& p, const std::string& what, const std::string& sentence, const char* rule, double size = INFINITY);
  Status failed(const Placed& p, const std::string& what, const std::string& sentence);

 private:
  void gather(const std::string& op, const CheckDevice& device);
  static Result<KernelRun> run(const Placed& p, const LoneLaunch& launch, const Again& again);

  const CheckContext& context_;
  TestLog& log_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::string where_;
  std::vector<Placed> placed_;
  std::set<std::string> taken_, found_;
  std::set<std::string> in_formats_;                      ///< kernels, inputs and formats that have been run in all ways
  std::map<std::string, std::set<std::string>> formats_;  ///< by kernel
  std::set<const CheckDevice*> ended_;
};

}  // namespace galley
