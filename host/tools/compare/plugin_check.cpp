#include "host/tools/compare/plugin_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>

#include "host/base/json.hpp"
#include "host/exec/checksum.hpp"
#include "host/exec/machine.hpp"
#include "host/graph/axes.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/host_table.hpp"
#include "host/proofs/gradients.hpp"
#include "host/proofs/lone_kernel.hpp"
#include "host/proofs/roles.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

constexpr const char* kRuleGradient =
    "galley_gradient_call: \"On return, the tensor that holds the gradient of each input that needs one.\"";
constexpr const char* kRuleReference = "galley_op.reference: \"Computes the op as it is defined.\"";
constexpr const char* kRuleSteady = "galley_op.reference: \"Computes the op as it is defined\", which no address is part of";
constexpr const char* kRuleRoles =
    "op.h: \"computed for any contiguous rows of its ROWS operands […] an op gives the numbers that it gives for all rows at once\"";
constexpr const char* kRuleKernel = "op.h: \"a reference in double precision that all kernels are tested against\"";
constexpr const char* kRuleWork =
    "kernel.h: enqueue \"Enqueues the work\" of each node that query takes, in outputs, workspace and constants and nowhere else";
constexpr const char* kRuleRanks = "ranks.h: \"all[r * bytes] … is what rank r gave\"; `check` is GALLEY_OK while no rank is gone";
constexpr const char* kRuleBytes =
    "kernel.h: a kernel without GALLEY_PLAN_VARIES has the same bytes in another run, at other addresses and with other threads";

bool same(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i] || !b[i]) continue;
    if (a[i]->bytes != b[i]->bytes || a[i]->floats.size() != b[i]->floats.size()) return false;
    for (size_t k = 0; k < a[i]->floats.size(); ++k)
      if (a[i]->floats[k] != b[i]->floats[k] && !(std::isnan(a[i]->floats[k]) && std::isnan(b[i]->floats[k]))) return false;
  }
  return true;
}

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

/// How a kernel is run once more: all of it may not change a byte.
struct Again {
  int place;
  bool other_threads;
  const char* order;  ///< of the threads of an emulated block; null: the usual one
  const char* text;
};
constexpr Again kElsewhere = {1, true, nullptr, "at other addresses and with another number of threads"};
constexpr Again kInReverse = {
    0, false, "reverse",
    "with the threads of a block in reverse (GALLEY_CUDA_ORDER=reverse): a barrier is missing, or two write one place"};
constexpr Again kShuffled = {
    0, false, "7", "with the threads of a block in another order (GALLEY_CUDA_ORDER=7): a barrier is missing, or two write one place"};
constexpr Again kOnAnyDevice[] = {kElsewhere}, kOnTheEmulated[] = {kElsewhere, kInReverse, kShuffled};

class Checker {
 public:
  Checker(Plugins& plugins, Plugin& plugin, const std::vector<CheckDevice>& devices, const PluginCheckOptions& options)
      : plugins_(plugins), plugin_(plugin), devices_(devices), target_(devices.front().target), options_(options) {}

  Result<PluginCheck> run() {
    out_.id = plugin_.manifest.id;
    out_.folder = plugin_.manifest.folder().string();
    for (const CheckDevice& device : devices_) plugins_.chains(device.target.device, device.target.isa);  // opens its kernels
    std::set<std::string> ops;
    for (const galley_op* op : plugin_.library->ops) {
      ops.insert(op->name);
      TRY_STATUS(check_op(*op));
    }
    for (const galley_ranks* ranks : plugin_.library->ranks) check_ranks(*ranks);
    // Kernels for other plugins' ops run on those ops' cases.
    for (const auto& [kernel, device] : own_kernels()) {
      const std::string op = kernel->op;
      if (ops.contains(op)) continue;
      if (op.find('>') != std::string::npos)
        note("kernel '" + std::string(kernel->name) + "': it does a chain, and no op says cases of one");
      else if (const Registered<galley_op> found = plugins_.op(op); !found)
        note("kernel '" + std::string(kernel->name) + "': no plugin here has its op '" + op + "'");
      else if (ops.insert(op).second) TRY_STATUS(check_op(*found.table));
    }
    for (const auto& [kernel, device] : own_kernels())
      if (refused_.contains(kernel) && !taken_.contains(kernel))
        note("kernel '" + std::string(kernel->name) + "'" + device->label + ": it takes no case of '" + kernel->op + "' here");
    for (const auto& [why, of] : no_gradient_) {
      std::string list;
      for (const std::string& op : of) list += (list.empty() ? "'" : ", '") + op + "'";
      note(std::string(of.size() == 1 ? "gradient of op " : "gradients of ops ") + list + ": " + why);
    }
    for (const KernelLibrary& library : plugin_.manifest.kernel_libraries)
      if (const std::string why = unopened(library); !why.empty()) note("kernels of " + library.library + ": " + why);
    if (!plugin_.manifest.strategies.empty()) {
      std::string list;
      for (const StrategySpec& s : plugin_.manifest.strategies) list += (list.empty() ? "'" : ", '") + s.name + "'";
      note("strategies " + list + ": galley certify holds them in a recipe");
    }
    if (!plugin_.library->formats.empty()) note("formats: galley certify holds what they promise");
    return std::move(out_);
  }

 private:
  void note(const std::string& text) {
    if (std::ranges::find(out_.unchecked, text) == out_.unchecked.end()) out_.unchecked.push_back(text);
  }

  /// Returns the kernels that the library and those of kernels for each device register.
  std::vector<std::pair<const galley_kernel*, const CheckDevice*>> own_kernels() const {
    std::vector<std::pair<const galley_kernel*, const CheckDevice*>> out;
    for (const CheckDevice& device : devices_) {
      const auto add = [&](const Library* library) {
        if (!library) return;
        for (const galley_kernel* kernel : library->kernels)
          if (device.target.device == kernel->device) out.emplace_back(kernel, &device);
      };
      add(plugin_.library);
      if (const auto found = plugin_.kernels.find({device.target.device, device.target.isa}); found != plugin_.kernels.end())
        add(found->second.library);
    }
    return out;
  }

  /// Why a library of kernels for another device than the processor was not looked at; "": it was.
  std::string unopened(const KernelLibrary& library) const {
    if (library.device == target_.device) return "";
    std::string why = "there is no device '" + library.device + "' here";
    if (library.device == "cuda") why += ", nor the emulated one, which comes with the SDK";
    for (const CheckDevice& device : devices_) {
      if (device.target.device != library.device) continue;
      const auto found = plugin_.kernels.find({device.target.device, device.target.isa});
      if (found == plugin_.kernels.end() || found->second.library == nullptr) why = "it cannot be opened";
      else if (found->second.file.filename() == library.library) return "";
      else if (device.emulated) why = "there is no GPU here that it is for";
      else return "";  // of another ISA than the GPU that is here
    }
    return why;
  }

  Status check_op(const galley_op& op) {
    const std::string name = std::string("op '") + op.name + "'";
    if (op.n_cases == 0) note(name + ": it declares no test cases");
    else if (!op.reference) note(name + ": it has no reference");
    else
      for (uint32_t c = 0; c < op.n_cases; ++c) TRY_STATUS(check_case(op, *op.cases[c]));
    return ok();
  }

  /// Opens the ranks for a run of one, which has nobody to wait for.
  void check_ranks(const galley_ranks& ranks) {
    CheckedCase checked = {std::string("ranks '") + ranks.name + "'", "one rank", {}, {}};
    const auto find = [&](const std::string& sentence) {
      checked.findings.push_back({checked.op, checked.example, "", HUGE_VAL, sentence, kRuleRanks});
    };
    const Caller caller = caller_of(&ranks, ranks.name);
    const TargetView target(target_);
    auto options = new_struct<galley_ranks_options>();
    options.target = target.get();
    options.ranks = options.local_ranks = 1;
    options.job = "galley check";
    const Axes axes(1, 0);
    options.axes = axes.view().data();
    options.n_axes = static_cast<uint32_t>(axes.view().size());
    void* handle = nullptr;
    const Status opened =
        call_plugin(caller, "open", [&](galley_error* error) { return ranks.open(ranks.self, &options, &handle, error); });
    if (!opened) {
      find(opened.error().cause);
    } else {
      const std::array<int64_t, 3> mine = {1, -2, 3};
      std::array<int64_t, 3> all = {};
      const Status given = call_plugin(
          caller, "exchange", [&](galley_error* error) { return ranks.exchange(handle, mine.data(), sizeof mine, all.data(), error); });
      if (!given) find(given.error().cause);
      else if (all != mine) find("exchange() of one rank does not return what it gave");
      int64_t culprit = 0;
      const Status here = call_plugin(caller, "check", [&](galley_error* error) { return ranks.check(handle, &culprit, error); });
      if (!here) find(here.error().cause);
      ranks.close(handle);
      checked.held.emplace_back("open, exchange, check, close");
    }
    if (options_.after) options_.after(checked);
    out_.cases.push_back(std::move(checked));
  }

  Status check_case(const galley_op& op, const galley_op_case& example) {
    CheckedCase checked = {op.name, example.node->name, {}, {}};
    std::mt19937_64 random(options_.seed ^ checksum(checked.op + "\n" + checked.example));
    const auto find = [&](const std::string& operand, double size, const std::string& sentence, const char* rule) {
      checked.findings.push_back({checked.op, checked.example, operand, size, sentence, rule});
    };
    const OpLookup ops = [&](std::string_view name) { return plugins_.op(name).table; };
    const bool own = caller_of(&op, op.name).plugin == plugin_.manifest.id;
    const LoneNode node = TRY(LoneNode::of(&op, example, random));
    // All at once: what is free again would be handed out at the same address.
    const Result<Values> outputs = outputs_of(node, ops), again = outputs_of(node, ops);
    if (!outputs || !again) {
      find("", 0, (outputs ? again : outputs).error().cause, kRuleReference);
    } else if (own && !same(*outputs, *again)) {
      find("", HUGE_VAL, "its reference computes other numbers at other addresses, or in another run", kRuleSteady);
    } else {
      if (own) {
        TRY_STATUS(check_rule(node, ops, random, checked, find));
        const RoleCheck roles = TRY(check_roles(node, *outputs, ops));
        if (!roles.rows.empty()) checked.held.emplace_back("rows in parts");
        for (const RoleFault& fault : roles.faults) find(fault.output, fault.share, fault.sentence, kRuleRoles);
      }
      TRY_STATUS(check_kernels(node, *outputs, checked, find));
    }
    if (options_.after) options_.after(checked);
    out_.cases.push_back(std::move(checked));
    return ok();
  }

  template <class Find>
  Status check_rule(const LoneNode& node, const OpLookup& ops, std::mt19937_64& random, CheckedCase& checked, const Find& find) {
    const GradientCheck gradient = TRY(check_gradient(node, Depth::EveryChoice, ops, random));
    if (!gradient.unchecked.empty()) {
      std::vector<std::string>& of = no_gradient_[gradient.unchecked];
      if (std::ranges::find(of, checked.op) == of.end()) of.push_back(checked.op);
      return ok();
    }
    std::string list;
    for (const std::string& input : gradient.inputs) list += (list.empty() ? "gradient of " : ", ") + input;
    checked.held.push_back(list);
    for (const GradientFault& fault : gradient.faults) find(fault.input, fault.share, fault.sentence, kRuleGradient);
    return ok();
  }

  template <class Find>
  Status check_kernels(const LoneNode& node, const Values& outputs, CheckedCase& checked, const Find& find) {
    for (const auto& [kernel, device] : own_kernels())
      if (checked.op == kernel->op && !lost_.contains(device)) TRY_STATUS(check_kernel(*kernel, *device, node, outputs, checked, find));
    return ok();
  }

  /// Runs a kernel in the usual way, or once more in another.
  static Result<KernelRun> run_on(const CheckDevice& device, const galley_kernel& kernel, const LoneNode& node, const Values& outputs,
                                  const Again* again) {
    Target target = device.target;
    if (again && again->other_threads) target.threads = target.threads > 1 ? 1 : 2;
    set_compute_threads(static_cast<int>(target.threads));
    const ThreadOrder order(again ? again->order : nullptr);
    Result<KernelRun> out = run_kernel(kernel, node, outputs, target, *device.table, again ? again->place : 0);
    set_compute_threads(static_cast<int>(device.target.threads));
    return out;
  }

  template <class Find>
  Status check_kernel(const galley_kernel& kernel, const CheckDevice& device, const LoneNode& node, const Values& outputs,
                      CheckedCase& checked, const Find& find) {
    const std::string name = std::string("kernel '") + kernel.name + "'" + device.label;
    const KernelRun first = TRY(run_on(device, kernel, node, outputs, nullptr));
    if (!first.refused.empty()) return refused_.insert(&kernel), ok();
    taken_.insert(&kernel);
    checked.held.push_back(name);
    std::string failed = first.failed;
    const std::span<const Again> ways = device.emulated ? std::span<const Again>(kOnTheEmulated) : kOnAnyDevice;
    for (const Again& way : ways) {
      if (!failed.empty()) break;
      const KernelRun again = TRY(run_on(device, kernel, node, outputs, &way));
      failed = again.failed;
      if (!failed.empty() || !again.refused.empty() || first.varies || again.bytes == first.bytes) continue;
      find("", HUGE_VAL, name + " leaves other bytes " + way.text, kRuleBytes);
      break;
    }
    if (!failed.empty()) {
      find("", HUGE_VAL, name + ": " + failed, kRuleWork);
      // What a GPU did wrong stays wrong for all that follows.
      if (device.label.empty() || works(device)) return ok();
      lost_.insert(&device);
      note("kernels" + device.label + " after " + name + ": it has ended the device");
      return ok();
    }
    if (node.op->flags & GALLEY_OP_ROUNDS) return ok();
    const KernelError error = TRY(kernel_error(node, outputs, first));
    if (error.share > 1)
      find(error.operand, error.share,
           name + ": element " + std::to_string(error.worst.element) +
               printed(" is %.7g, the reference says %.7g ± %.2g, so the error is %.2g times its bound", error.worst.got,
                       error.worst.expected, error.worst.bound, error.share),
           kRuleKernel);
    return ok();
  }

  /// Whether the device can still be used.
  static bool works(const CheckDevice& device) {
    const Program nothing;
    Plan plan;
    plan.classes.resize(device.target.memories.size());
    const Result<std::unique_ptr<Machine>> machine = Machine::open(nothing, plan, device.target, *device.table, HostCopies::No);
    return machine && (*machine)->synchronize().ok();
  }

  Plugins& plugins_;
  Plugin& plugin_;
  const std::vector<CheckDevice>& devices_;
  const Target& target_;                            ///< the processor's
  std::set<const CheckDevice*> lost_;               ///< those that a kernel has ended
  std::set<const galley_kernel*> taken_, refused_;  ///< kernels that have run, and that have taken no case or not all
  const PluginCheckOptions& options_;
  std::map<std::string, std::vector<std::string>> no_gradient_;  ///< by why: ops
  PluginCheck out_;
};

}  // namespace

int64_t PluginCheck::findings() const {
  int64_t n = 0;
  for (const CheckedCase& c : cases) n += static_cast<int64_t>(c.findings.size());
  return n;
}

Result<std::vector<CheckDevice>> check_devices(Plugins& plugins, const Plugin& plugin) {
  std::vector<CheckDevice> out;
  const Registered<galley_device> processor = plugins.device("cpu");
  if (!processor) return run_error("there is no device 'cpu' here, on which kernels could be tried");
  out.push_back({processor.table, TRY(describe_target(*processor.table)), "", false});
  std::map<std::string, bool> kinds;  // whether there are kernels for a machine of a certain ISA
  for (const KernelLibrary& library : plugin.manifest.kernel_libraries) kinds[library.device] |= !library.isa.empty();
  for (const galley_kernel* kernel : plugin.library->kernels) kinds.try_emplace(kernel->device, true);
  kinds.erase(out.front().target.device);
  for (const auto& [kind, for_real] : kinds) {
    const Registered<galley_device> emulated = plugins.device(kind + "-emulated"), real = plugins.device(kind);
    for (const auto& device : {for_real || !emulated ? real : Registered<galley_device>(), emulated}) {
      if (!device) continue;
      const Result<Target> target = describe_target(*device.table);
      if (!target) continue;
      const bool is_emulated = device.table == emulated.table;
      out.push_back({device.table, *target, " on " + kind + (is_emulated ? " (emulated)" : ""), is_emulated});
      break;
    }
  }
  return out;
}

Result<PluginCheck> check_plugin(Plugins& plugins, Plugin& plugin, const std::vector<CheckDevice>& devices,
                                 const PluginCheckOptions& options) {
  return Checker(plugins, plugin, devices, options).run();
}

std::string case_text(const CheckedCase& checked, const char* red, const char* plain) {
  std::string held;
  for (const std::string& what : checked.held) held += (held.empty() ? "" : "; ") + what;
  const bool wrong = !checked.findings.empty();
  std::string out = (wrong ? std::string(red) + "WRONG" + plain : std::string(held.empty() ? "-    " : "ok   ")) + "  " + checked.op +
                    ", " + checked.example + ": " + (held.empty() ? "nothing to hold" : held) + "\n";
  for (const PluginFinding& f : checked.findings)
    out += "       " + (f.operand.empty() ? "" : f.operand + ": ") + f.sentence + "\n       breaks " + f.rule + "\n";
  return out;
}

std::string summary_text(const PluginCheck& check, const char* red, const char* plain) {
  std::string out;
  for (const std::string& what : check.unchecked) out += "not checked: " + what + "\n";
  std::set<std::string> ops;
  int64_t cases = 0;
  for (const CheckedCase& c : check.cases) {
    cases += !c.held.empty();
    if (!c.held.empty() && !c.op.starts_with("ranks ")) ops.insert(c.op);
  }
  const int64_t findings = check.findings();
  return out +
         printed("%zu op%s, %lld case%s: ", ops.size(), ops.size() == 1 ? "" : "s", static_cast<long long>(cases), cases == 1 ? "" : "s") +
         (findings ? red + printed("%lld finding%s", static_cast<long long>(findings), findings == 1 ? "" : "s") + plain
                   : std::string("nothing found")) +
         "\n";
}

std::string check_json(const PluginCheck& check) {
  const auto texts = [](const std::vector<std::string>& list) {
    List out;
    for (const std::string& text : list) out.push_back(Value(text));
    return Value(std::move(out));
  };
  List cases;
  for (const CheckedCase& c : check.cases) {
    List findings;
    for (const PluginFinding& f : c.findings)
      findings.push_back(Value(Table{{"operand", Value(f.operand)},
                                     {"size", std::isfinite(f.size) ? Value(f.size) : Value()},
                                     {"sentence", Value(f.sentence)},
                                     {"rule", Value(f.rule)}}));
    cases.push_back(
        Value(Table{{"op", Value(c.op)}, {"case", Value(c.example)}, {"held", texts(c.held)}, {"findings", Value(std::move(findings))}}));
  }
  return to_json(Value(Table{{"plugin", Value(check.id)},
                             {"folder", Value(check.folder)},
                             {"cases", Value(std::move(cases))},
                             {"unchecked", texts(check.unchecked)},
                             {"findings", Value(check.findings())}}),
                 2) +
         "\n";
}

}  // namespace galley
