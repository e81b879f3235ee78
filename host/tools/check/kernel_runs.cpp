#include "host/tools/check/kernel_runs.hpp"

#include <cstdlib>

#include "host/exec/machine.hpp"
#include "host/plugins/isa.hpp"
#include "host/tools/check/cases.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

/// In which order the emulated GPU runs the threads of a block (galley/emulated/cuda.hpp): as the user says, once this is gone.
class ThreadOrder {
 public:
  explicit ThreadOrder(const char* order) {
    if (const char* mine = std::getenv(kName)) before_ = mine;
    if (order) ::setenv(kName, order, 1);
  }
  ThreadOrder(const ThreadOrder&) = delete;
  ThreadOrder& operator=(const ThreadOrder&) = delete;
  ~ThreadOrder() {
    if (before_) ::setenv(kName, before_->c_str(), 1);
    else ::unsetenv(kName);
  }

 private:
  static constexpr const char* kName = "GALLEY_CUDA_ORDER";
  std::optional<std::string> before_;
};

constexpr const char* kBarrier = ": a barrier is missing, or two write one place";

}  // namespace

const std::vector<Again>& ways_on(const CheckDevice& device) {
  static const std::vector<Again> on_any = {
      {{.place = 1}, 1, BlockOrder::Free, nullptr, "at other addresses and with another number of threads", rules::kBytes},
      {{}, 3, BlockOrder::Free, nullptr, "with three threads", rules::kBytes},
      {{}, 16, BlockOrder::Free, nullptr, "with sixteen threads", rules::kBytes},
      {{}, 1, BlockOrder::Reverse, nullptr, "with the blocks of its work in reverse", rules::kBlockOrder},
      {{.beside = true}, 0, BlockOrder::Free, nullptr, "with another node prepared meanwhile", rules::kPrepare},
      {{.launches = 3}, 0, BlockOrder::Free, nullptr, "in a later launch of the same operands", rules::kBytes},
      {{.edge = Edge::After}, 0, BlockOrder::Free, nullptr, "with nothing after its operands", rules::kBytes},
      {{.edge = Edge::Before}, 0, BlockOrder::Free, nullptr, "with nothing before its operands", rules::kBytes}};
  static const std::vector<Again> on_emulated = {
      on_any[0],
      on_any[4],
      on_any[5],
      {{}, 0, BlockOrder::Free, "reverse", "with the threads of a block in reverse (GALLEY_CUDA_ORDER=reverse)", rules::kBytes},
      {{}, 0, BlockOrder::Free, "7", "with the threads of a block in another order (GALLEY_CUDA_ORDER=7)", rules::kBytes},
      {{}, 0, BlockOrder::Free, "11", "with the threads of a block in another order (GALLEY_CUDA_ORDER=11)", rules::kBytes}};
  return device.emulated ? on_emulated : on_any;
}

Again in_group(int at) {
  return {{.place = 1, .group = at}, 0, BlockOrder::Free, nullptr, "with another node in its launch", rules::kBytes};
}

KernelRuns::KernelRuns(const CheckContext& context, const std::string& op, const std::vector<CheckDevice>& devices, TestLog& log)
    : context_(context), log_(log) {
  for (const CheckDevice& device : devices) gather(op, device);
}

void KernelRuns::gather(const std::string& op, const CheckDevice& device) {
  std::set<std::string> levels = {device.target.isa};
  bool several = false;  // libraries of levels, of which each is named
  for (const KernelLibrary& library : context_.plugin.manifest.kernel_libraries)
    if (library.device == device.target.device && !library.isa.empty()) {
      several = true;
      if (isa_rank(library.isa, device.target.isa)) levels.insert(library.isa);
      else if (same_kind(library.isa, device.target.isa)) log_.unchecked("kernels for " + library.isa + ": this machine lacks it");
    }
  std::set<const galley_kernel*> seen;
  for (const std::string& isa : levels)
    for (const Registered<galley_kernel>& found : context_.plugins.kernels(op, device.target.device, isa)) {
      if (found.plugin != &context_.plugin || !seen.insert(found.table).second) continue;
      Placed& p =
          placed_.emplace_back(found.table, &device, device.target, std::string("kernel '") + found.table->name + "'" + device.label);
      p.target.isa = isa;
      if (several && device.label.empty()) p.name += " for " + isa;
    }
}

bool KernelRuns::late(double times) const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count() > times * context_.seconds;
}

void KernelRuns::end(const std::string& what) const {
  for (const auto& [kernel, formats] : formats_) {
    std::string list;
    for (const std::string& format : formats) list += (list.empty() ? "" : ", ") + format;
    log_.held(kernel + " with " + list);
  }
  for (const Placed& p : placed_)
    if (!taken_.contains(p.name)) log_.unchecked(p.name + ": it takes no " + what + " here");
}

Result<std::optional<KernelRun>> KernelRuns::run(const Placed& p, const LoneLaunch& launch, const std::string& what) {
  KernelRun first = TRY(run(p, launch, LaunchWay()));
  if (!first.refused.empty()) return std::optional<KernelRun>();
  if (taken_.insert(p.name).second) log_.held(p.name);
  if (first.failed.empty()) return std::optional(std::move(first));
  TRY_STATUS(failed(p, what, first.failed));
  return std::optional<KernelRun>();
}

Result<KernelRun> KernelRuns::run(const Placed& p, const LoneLaunch& launch, const LaunchWay& way) {
  set_compute_threads(static_cast<int>(p.target.threads));
  Result<KernelRun> out = run_kernel(*p.kernel, launch, p.target, *p.device->table, way);
  set_compute_threads(static_cast<int>(p.device->target.threads));
  return out;
}

Result<KernelRun> KernelRuns::run(const Placed& p, const LoneLaunch& launch, const Again& again) {
  const ThreadOrder order(again.order);
  set_block_order(again.blocks);
  Placed other = p;
  if (again.threads > 0 && p.device->label.empty()) other.target.threads = again.threads == 1 && p.target.threads == 1 ? 2 : again.threads;
  Result<KernelRun> out = run(other, launch, again.way);
  set_block_order(BlockOrder::Free);
  return out;
}

Result<bool> KernelRuns::same_again(const Placed& p, const LoneLaunch& launch, const KernelRun& first, const Again& way,
                                    const std::string& what) {
  const KernelRun again = TRY(run(p, launch, way));
  if (!again.failed.empty()) {
    TRY_STATUS(failed(p, what, again.failed + ", " + way.text));
    return false;
  }
  if (!again.refused.empty() || first.varies) return true;
  if (again.left > 1024 && p.device->label.empty())
    find(p, what, printed(": each launch leaves %.1f KiB of memory", static_cast<double>(again.left) / 1024), rules::kNoMemory);
  if (again.goes_on) find(p, what, " goes on writing after it has come back", rules::kAfter);
  if (again.bytes == first.bytes && !again.unsteady) return true;
  find(p, what, std::string(" leaves other bytes ") + way.text + (way.order ? kBarrier : ""), way.rule);
  return false;
}

Status KernelRuns::check_formats(const Placed& p, const LoneLaunch& launch) {
  if (!(p.kernel->flags & GALLEY_KERNEL_FORMATS)) return ok();
  const LoneLaunch::Link& first = launch.links.front();
  const bool between = launch.links.size() > 1 && first.outputs->empty();  // is input 0
  for (size_t i = between; i < first.node->inputs.size(); ++i) {
    const auto& numbers = first.node->inputs[i];
    if (!numbers || !numbers->floating()) continue;
    for (const LoneFormat& format : in_formats(context_.plugins, *numbers, p.kernel->device, p.target.isa)) {
      const std::string what = "input " + std::to_string(i) + " in format '" + format.format.name + "'";
      if (late()) continue;
      LoneLaunch in_format = launch;
      in_format.links.front().formats = {{i, &format}};
      const std::optional<KernelRun> ran = TRY(run(p, in_format, what));
      if (!ran) continue;
      formats_[p.name].insert(format.format.name);
      TRY_STATUS(check_numbers(p, in_format, *ran, what, "", rules::kKernel));
      if (!in_formats_.insert(p.name + what).second) continue;
      for (const Again& way : ways_on(*p.device))
        if (way.way.launches == 1 && !way.way.beside && !TRY(same_again(p, in_format, *ran, way, what))) break;
    }
  }
  return ok();
}

Status KernelRuns::check_numbers(const Placed& p, const LoneLaunch& launch, const KernelRun& run, const std::string& what,
                                 const std::string& how, const char* rule) {
  for (const LoneLaunch::Link& link : launch.links)
    if (link.node->op->flags & GALLEY_OP_ROUNDS) return ok();
  const KernelError error = TRY(kernel_error(launch, run));
  if (error.share > 1)
    find(p, (what.empty() ? "" : what + ", ") + error.operand,
         how + ": element " + std::to_string(error.worst.element) +
             printed(" is %.7g, the reference says %.7g", error.worst.got, error.worst.expected) + beyond(error.worst),
         rule, error.share);
  return ok();
}

void KernelRuns::find(const Placed& p, const std::string& what, const std::string& sentence, const char* rule, double size) {
  if (!found_.insert(p.name + rule).second) return;
  log_.find({where_ + (what.empty() ? "" : ", " + what), p.name + sentence, rule, size});
}

Status KernelRuns::failed(const Placed& p, const std::string& what, const std::string& sentence) {
  find(p, what, ": " + sentence, sentence.find("prepare") == std::string::npos ? rules::kWork : rules::kPrepare);
  if (p.device->label.empty()) return ok();
  // What a GPU did wrong stays wrong for all that follows.
  const Program nothing;
  Plan plan;
  plan.classes.resize(p.device->target.memories.size());
  const Result<std::unique_ptr<Machine>> machine = Machine::open(nothing, plan, p.device->target, *p.device->table, HostCopies::No);
  if (machine && (*machine)->synchronize().ok()) return ok();
  ended_.insert(p.device);
  log_.unchecked("kernels" + p.device->label + " after " + p.name + ": it has ended the device");
  return ok();
}

}  // namespace galley
