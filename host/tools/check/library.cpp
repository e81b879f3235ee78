// The first test: opens the plugin, looks at what that has changed in the process and at names, and lists what else there is to test.
#include <chrono>
#include <csignal>
#include <cstring>
#include <set>

#include "host/tools/check/rules.hpp"
#include "host/tools/check/sanitizers.hpp"
#include "host/tools/check/tests.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

constexpr double kMostToOpen = 2;

/// What each signal does.
class Handlers {
 public:
  Handlers() {
    for (int signal = 1; signal < kSignals; ++signal) ::sigaction(signal, nullptr, &of_[signal]);
  }
  /// The first signal that does something else; 0: none.
  int changed(const Handlers& before) const {
    for (int signal = 1; signal < kSignals; ++signal)
      if (of_[signal].sa_handler != before.of_[signal].sa_handler) return signal;
    return 0;
  }

 private:
  static constexpr int kSignals = 32;
  struct sigaction of_[kSignals] = {};
};

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "'" : ", '") + name + "'";
  return out;
}

/// Names that another plugin has, too: which of the two is used is by chance.
void check_names(const CheckContext& context, TestLog& log) {
  const Manifest& own = context.plugin.manifest;
  const auto names_of = [](const auto& tables) {
    std::set<std::string> out;
    for (const auto* table : tables) out.insert(table->name);
    return out;
  };
  const Library& library = *context.plugin.library;
  const std::pair<const char*, std::pair<std::set<std::string>, std::vector<std::string> Manifest::*>> lists[] = {
      {"op", {names_of(library.ops), &Manifest::ops}}, {"format", {names_of(library.formats), &Manifest::formats}}};
  for (const auto& other : context.plugins.all()) {
    if (other->manifest.id == own.id) continue;
    for (const auto& [noun, list] : lists)
      for (const std::string& name : other->manifest.*(list.second))
        if (list.first.contains(name))
          log.find(std::string(noun) + " '" + name + "'", "plugin '" + other->manifest.id + "' has one of this name, too", rules::kNames);
    for (const StrategySpec& strategy : own.strategies)
      if (other->manifest.strategy(strategy.name))
        log.find("strategy '" + strategy.name + "'", "plugin '" + other->manifest.id + "' has one of this name, too", rules::kNames);
  }
  log.held("names: " + std::to_string(library.ops.size()) + " ops, " + std::to_string(library.kernels.size()) + " kernels, " +
           std::to_string(library.formats.size()) + " formats, " + std::to_string(own.strategies.size()) + " strategies, " +
           std::to_string(own.sources.size()) + " sources");
}

/// Libraries of kernels that cannot be opened here, or that nobody opens.
void check_kernel_libraries(const CheckContext& context, const std::vector<CheckDevice>& devices, TestLog& log) {
  for (const KernelLibrary& library : context.plugin.manifest.kernel_libraries) {
    if (library.device == devices.front().target.device) continue;
    std::string why = "there is no device '" + library.device + "' here";
    if (library.device == "cuda") why += ", nor the emulated one, which comes with the SDK";
    for (const CheckDevice& device : devices) {
      if (device.target.device != library.device) continue;
      const auto found = context.plugin.kernels.find({device.target.device, device.target.isa});
      if (found == context.plugin.kernels.end() || found->second.library == nullptr) why = "it cannot be opened";
      else if (found->second.file.filename() == library.library) why.clear();
      else if (device.emulated) why = "there is no GPU here that it is for";
      else why.clear();  // of another ISA than the GPU that is here
    }
    if (!why.empty()) log.unchecked("kernels of " + library.library + ": " + why);
  }
}

}  // namespace

Status check_library(const CheckContext& context, TestLog& log) {
  using Clock = std::chrono::steady_clock;
  const Handlers before;
  const auto begin = Clock::now();
  const Status loaded = context.plugins.load(context.plugin);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (seconds > kMostToOpen) {
    log.find("open", printed("it takes %.1f s to be opened", seconds), rules::kSeconds);
    return log.unchecked("everything else, which would open it each time"), ok();
  }
  if (!loaded) {
    const std::string& cause = loaded.error().cause;
    const char* const rule = rules::broken_by(cause);
    return log.find("", cause, rule == rules::kStatus ? rules::kLoad : rule), ok();
  }
  if (const int signal = Handlers().changed(before))
    log.find("open", std::string("signal ") + ::sigabbrev_np(signal) + " does something else since it was opened", rules::kAsFound);
  log.held("opened" + (sanitizers_here().empty() ? "" : " under " + sanitizers_here()));
  const std::vector<CheckDevice> devices = TRY(check_devices(context.plugins, context.plugin));
  for (const CheckDevice& device : devices) context.plugins.chains(device.target.device, device.target.isa);  // opens its kernels
  check_names(context, log);
  check_kernel_libraries(context, devices, log);

  const Library& library = *context.plugin.library;
  std::set<std::string> kernels;
  for (const galley_kernel* kernel : library.kernels) kernels.insert(kernel->op);
  for (const auto& [_, opened] : context.plugin.kernels)
    if (opened.library)
      for (const galley_kernel* kernel : opened.library->kernels) kernels.insert(kernel->op);
  for (const galley_op* op : library.ops) log.test(std::string("op ") + op->name);
  for (const std::string& op : kernels) log.test("kernels of " + op);
  for (const galley_format* format : library.formats) log.test(std::string("format ") + format->name);
  for (const StrategySpec& source : context.plugin.manifest.sources) log.test("source " + source.name);
  for (const StrategySpec& strategy : context.plugin.manifest.strategies) log.test("strategy " + strategy.name);
  for (const StrategySpec& strategy : context.plugin.manifest.strategies) log.test("training with " + strategy.name);
  for (const galley_ranks* ranks : library.ranks) log.test(std::string("ranks ") + ranks->name);
  if (!library.devices.empty()) {
    std::vector<std::string> names;
    for (const galley_device* device : library.devices) names.emplace_back(device->kind);
    log.unchecked("devices " + list_of(names) + ": tests/gpu and runs on them hold these");
  }
  return ok();
}

}  // namespace galley
