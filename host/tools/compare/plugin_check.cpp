#include "host/tools/compare/plugin_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "host/base/json.hpp"
#include "host/exec/checksum.hpp"
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

class Checker {
 public:
  Checker(Plugins& plugins, Plugin& plugin, const Target& target, const PluginCheckOptions& options)
      : plugins_(plugins), plugin_(plugin), target_(target), options_(options) {}

  Result<PluginCheck> run() {
    out_.id = plugin_.manifest.id;
    out_.folder = plugin_.manifest.folder().string();
    plugins_.chains(target_.device, target_.isa);  // opens its kernels for the processor
    std::set<std::string> ops;
    for (const galley_op* op : plugin_.library->ops) {
      ops.insert(op->name);
      TRY_STATUS(check_op(*op));
    }
    for (const galley_ranks* ranks : plugin_.library->ranks) check_ranks(*ranks);
    // Kernels for other plugins' ops run on those ops' cases.
    for (const galley_kernel* kernel : own_kernels()) {
      const std::string op = kernel->op;
      if (ops.contains(op)) continue;
      if (op.find('>') != std::string::npos)
        note("kernel '" + std::string(kernel->name) + "': it does a chain, and no op says cases of one");
      else if (const Registered<galley_op> found = plugins_.op(op); !found)
        note("kernel '" + std::string(kernel->name) + "': no plugin here has its op '" + op + "'");
      else if (ops.insert(op).second) TRY_STATUS(check_op(*found.table));
    }
    for (const auto& [why, of] : no_gradient_) {
      std::string list;
      for (const std::string& op : of) list += (list.empty() ? "'" : ", '") + op + "'";
      note(std::string(of.size() == 1 ? "gradient of op " : "gradients of ops ") + list + ": " + why);
    }
    for (const KernelLibrary& library : plugin_.manifest.kernel_libraries)
      if (library.device != target_.device) note("kernels of " + library.library + ": they are for device '" + library.device + "'");
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

  /// Returns the kernels that the library and that of the processor's kernels register.
  std::vector<const galley_kernel*> own_kernels() const {
    std::vector<const galley_kernel*> out;
    const auto add = [&](const Library* library) {
      if (!library) return;
      for (const galley_kernel* kernel : library->kernels)
        if (target_.device == kernel->device) out.push_back(kernel);
    };
    add(plugin_.library);
    for (const auto& [key, opened] : plugin_.kernels) add(opened.library);
    return out;
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
    options.axes = run_axes().data();
    options.n_axes = static_cast<uint32_t>(run_axes().size());
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
    for (const galley_kernel* kernel : own_kernels()) {
      if (checked.op != kernel->op) continue;
      const std::string name = std::string("kernel '") + kernel->name + "'";
      Target other = target_;
      other.threads = target_.threads > 1 ? 1 : 2;
      set_compute_threads(static_cast<int>(target_.threads));
      const Result<KernelRun> run = run_kernel(*kernel, node, outputs, target_, 0);
      set_compute_threads(static_cast<int>(other.threads));
      const Result<KernelRun> again = run ? run_kernel(*kernel, node, outputs, other, 1) : Result<KernelRun>(run.error());
      set_compute_threads(static_cast<int>(target_.threads));
      if (!run || !again) {
        find("", HUGE_VAL, name + ": " + (run ? again : run).error().cause, kRuleKernel);
        continue;
      }
      if (!run->refused.empty() || !again->refused.empty()) continue;
      checked.held.push_back(name);
      if (!run->varies && run->bytes != again->bytes)
        find("", HUGE_VAL, name + " leaves other bytes at other addresses and with " + std::to_string(other.threads) + " threads",
             kRuleBytes);
      if (node.op->flags & GALLEY_OP_ROUNDS) continue;
      const KernelError error = TRY(kernel_error(node, outputs, *run));
      if (error.share > 1)
        find(error.operand, error.share,
             name + ": element " + std::to_string(error.worst.element) +
                 printed(" is %.7g, the reference says %.7g ± %.2g, so the error is %.2g times its bound", error.worst.got,
                         error.worst.expected, error.worst.bound, error.share),
             kRuleKernel);
    }
    return ok();
  }

  Plugins& plugins_;
  Plugin& plugin_;
  const Target& target_;
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

Result<PluginCheck> check_plugin(Plugins& plugins, Plugin& plugin, const Target& target, const PluginCheckOptions& options) {
  return Checker(plugins, plugin, target, options).run();
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
