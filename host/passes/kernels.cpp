#include "host/passes/kernels.hpp"

#include <algorithm>
#include <deque>
#include <string_view>
#include <tuple>

#include "galley/kernel.h"
#include "host/plugins/abi.hpp"
#include "host/plugins/attributes.hpp"

namespace galley {
namespace {

/// An instruction as `query` sees it, and all that it sees as a string.
struct Question {
  Question(const Instruction& i, const std::vector<ProgramTensor>& tensors, int64_t length) {
    key = (i.launch()->on_host ? "host " : "") + op_text(*i.launch()) + " " + std::to_string(i.inputs.size());
    // They stay where they are: nodes point to their operands, and operands in a format to their components, which come after all nodes'.
    inputs.reserve(i.inputs.size());
    outputs.reserve(i.outputs.size());
    instruction = &i;
    for (const LaunchNode& node : i.launch()->nodes) {
      key += " " + std::to_string(node.flags) + " " + std::to_string(node.first_row);
      for (const Operand& o : i.inputs_of(node)) inputs.push_back(describe(o, tensors));
      key += ">";
      for (const Operand& o : i.outputs_of(node)) outputs.push_back(describe(o, tensors));
      const auto& attrs = all_attrs.emplace_back(node.attrs.view());
      key += ";" + node.attrs.key();
      views.push_back(
          node_view(node, length, std::span(inputs).subspan(node.inputs.first), std::span(outputs).subspan(node.outputs.first), attrs));
      nodes.push_back(&views.back());
    }
    for (size_t k = inputs.size(); k < i.inputs.size(); ++k) inputs.push_back(describe(i.inputs[k], tensors));
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  const galley_operand* describe(const Operand& o, const std::vector<ProgramTensor>& tensors) {
    if (!o.given()) {
      key += "|-";
      return nullptr;
    }
    const uint32_t access = std::max(o.access, o.later);
    const char* name = o.present() ? tensors[static_cast<size_t>(o.tensor)].name.c_str()
                       : o.format  ? o.format->name.c_str()
                                   : names.emplace_back("between " + std::to_string(o.inner)).c_str();
    key += "|" + std::to_string(o.dtype) + "," + std::to_string(access) + "," + std::to_string(o.inner);
    for (const int64_t extent : o.shape) key += "," + std::to_string(extent);
    if (o.present() && instruction->launch()->nodes.size() > 1) name = shared_name(o, name);
    operands.push_back(operand_view(o, name, nullptr, access));
    if (o.format) {
      key += "," + o.format->name + o.format->attrs.key();
      operands.back().components = inputs.data() + o.format->first;
      formats = true;
    }
    return &operands.back();
  }

  /// Operands of several nodes have one name where they are the same bytes, and only there; which are is part of the question.
  const char* shared_name(const Operand& o, const char* name) {
    const size_t number = operands.size();
    const auto [same, fresh] = ranges.try_emplace({o.tensor, o.offset, o.bytes()}, number, name);
    if (fresh && !taken.insert(name).second) same->second.second = names.emplace_back(name + (" " + std::to_string(number))).c_str();
    if (!fresh) key += "=" + std::to_string(same->second.first);
    return same->second.second;
  }

  const Instruction* instruction = nullptr;
  std::deque<std::string> names;
  std::map<std::tuple<TensorId, int64_t, int64_t>, std::pair<size_t, const char*>> ranges;  ///< of several nodes: first operand and name
  std::set<std::string_view> taken;
  std::string key;
  bool formats = false;
  std::deque<galley_operand> operands;
  std::vector<const galley_operand*> inputs, outputs;
  std::deque<std::vector<const galley_attr*>> all_attrs;
  std::deque<galley_node_view> views;
  std::vector<const galley_node_view*> nodes;
};

/// What a node has that `known` does not reach to, or "".
std::string unknown_part(const galley_known_op& known, const Instruction& i, const LaunchNode& node) {
  const galley_op& op = *node.op;
  const auto beyond = [](const std::span<const Operand>& operands, uint32_t n, const galley_operand_rule* const* rules, uint32_t n_rules) {
    if (n && n <= n_rules && rules[n - 1]->flags & GALLEY_OPERAND_VARIADIC) return std::string();
    for (size_t j = n; j < operands.size(); ++j)
      if (operands[j].given()) return std::string(j < n_rules ? rules[j]->name : "more");
    return std::string();
  };
  const std::string before = "it does not know ", of = " of '" + std::string(op.name) + "'";
  if (const std::string in = beyond(i.inputs_of(node), known.n_inputs, op.inputs, op.n_inputs); !in.empty())
    return before + "the input '" + in + "'" + of;
  if (const std::string out = beyond(i.outputs_of(node), known.n_outputs, op.outputs, op.n_outputs); !out.empty())
    return before + "the output '" + out + "'" + of;
  const std::vector<const galley_attr_rule*> rules = attr_rules(op);
  for (const galley_attr* attr : node.attrs.view()) {
    const auto same = [&](const char* name) { return galley_same_text(name, attr->name); };
    if (std::any_of(known.attrs, known.attrs + known.n_attrs, same) || same("dtype") || same("stream") || same("seed") || same("axis"))
      continue;
    const auto rule = std::ranges::find_if(rules, [&](const auto* r) { return same(r->name); });
    if (rule == rules.end()) continue;
    if ((*rule)->flags & GALLEY_ATTR_ADVICE || ((*rule)->otherwise && attr_text(*(*rule)->otherwise) == attr_text(*attr))) continue;
    return before + "the attribute '" + attr->name + "'" + of;
  }
  return {};
}

}  // namespace

void give(Program& program, Instruction& i, const KernelChoice& choice, uint32_t at) {
  Launch& launch = *i.launch();
  launch.kernel = choice.kernel;
  launch.capturable = choice.capturable;
  launch.varies = choice.varies;
  launch.priority = choice.priority;
  const auto memory = [&](const char* what, int64_t bytes, Life life) {
    if (bytes <= 0) return no_tensor;
    program.tensors.push_back({what + i.name, GALLEY_U8, {bytes}, bytes, at, Owner::Workspace, life, ""});
    return static_cast<TensorId>(program.tensors.size() - 1);
  };
  launch.workspace = memory("workspace of ", choice.workspace, Life::Segment);
  launch.constants = memory("constants of ", choice.constants, Life::Run);
}

Kernels::Kernels(Plugins& plugins, Strategies strategies, const Target& target, const CompileOptions& options, int64_t length)
    : plugins_(plugins), target_(target), length_(length), exchanges_(options.exchanges) {
  std::set<const Plugin*> used;
  for (const auto& s : strategies) used.insert(&s->plugin());
  admits_ = [used, built_in = options.built_in, asked = options.kernels, device = plugins.device(target.device).plugin](const Plugin& p) {
    return used.contains(&p) || &p == device || asked.contains(p.manifest.id) || (built_in && built_in(p));
  };
}

const galley_codec* Kernels::codec(const std::string& format) {
  const auto [at, first_time] = codecs_.try_emplace(format);
  if (first_time) at->second = plugins_.codec(format, target_.device, target_.isa);
  return at->second;
}

/// A chain is a plugin's own if all of its links are.
bool Kernels::admitted(const Plugin& plugin, const Instruction& i) {
  // Only the kernels of the plugin that has joined the processes know what it has made.
  if (i.exchanges() && !exchanges_.empty()) return plugin.manifest.id == exchanges_;
  if (admits_(plugin)) return true;
  return std::ranges::all_of(std::span(i.launch()->nodes).first(i.launch()->links), [&](const LaunchNode& node) {
    const Registered<galley_op> registered = plugins_.op(node.op->name);
    return registered.table == node.op && registered.plugin == &plugin;
  });
}

/// Why a kernel is not offered a node: the op is private to another plugin, or the node has what the kernel does not know of it. "" if it is.
std::string Kernels::unknown_to(const Registered<galley_kernel>& kernel, const Instruction& i, const LaunchNode& node) {
  const galley_op& op = *node.op;
  const std::string& owner = plugin_of(&op);
  if (owner.empty() || owner == kernel.plugin->manifest.id) return {};  // built with it
  if (op.flags & GALLEY_OP_PRIVATE) return "'" + std::string(op.name) + "' is private to its own plugin";
  const std::span all(kernel.table->knows, kernel.table->n_knows);
  const auto known = std::ranges::find_if(all, [&](const galley_known_op* k) { return galley_same_text(k->op, op.name); });
  if (known == all.end()) return "it does not say what it knows of '" + std::string(op.name) + "', an op of another plugin";
  return unknown_part(**known, i, node);
}

const std::vector<std::vector<std::string>>& Kernels::chains() {
  if (chains_) return *chains_;
  chains_.emplace();
  for (const std::string& text : plugins_.chains(target_.device, target_.isa)) {
    std::vector<std::string>& links = chains_->emplace_back(1);
    for (const char letter : text) {
      if (letter == '>') links.emplace_back();
      else links.back() += letter;
    }
  }
  std::stable_sort(chains_->begin(), chains_->end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return *chains_;
}

bool Kernels::takes_groups(const std::string& op) {
  const auto [found, fresh] = takes_groups_.try_emplace(op, false);
  if (fresh)
    for (const Registered<galley_kernel>& k : plugins_.kernels(op, target_.device, target_.isa))
      found->second = found->second || (k.table->flags & GALLEY_KERNEL_GROUPS);
  return found->second;
}

bool Kernels::takes_groups(const galley_op* op) {
  const auto [found, fresh] = ops_take_groups_.try_emplace(op, false);
  if (fresh) found->second = takes_groups(std::string(op->name));
  return found->second;
}

Result<const KernelChoice*> Kernels::choose(const Instruction& i, const std::vector<ProgramTensor>& tensors) {
  const Question question(i, tensors, length_);
  const auto [found, fresh] = chosen_.try_emplace(question.key);
  KernelChoice& choice = found->second;
  if (!fresh) return &choice;
  const Launch& launch = *i.launch();
  const auto n = static_cast<uint32_t>(launch.nodes.size());
  const TargetView target(launch.on_host ? target_.of_host() : target_);
  galley_kernel_plan plan = {};
  for (const Registered<galley_kernel>& k : plugins_.kernels(op_text(launch), target.get()->device, target.get()->isa)) {
    const galley_kernel* kernel = k.table;
    if (question.formats && !(kernel->flags & GALLEY_KERNEL_FORMATS)) continue;
    if (n > launch.links && !(kernel->flags & GALLEY_KERNEL_GROUPS)) continue;
    if (!admitted(*k.plugin, i)) {
      choice.refusals +=
          std::string("; ") + kernel->name + ": the recipe does not ask for kernels of plugin '" + k.plugin->manifest.id + "'";
      continue;
    }
    std::string beyond;
    for (const LaunchNode& node : launch.nodes)
      if (beyond.empty()) beyond = unknown_to(k, i, node);
    if (!beyond.empty()) {
      choice.refusals += std::string("; ") + kernel->name + ": " + beyond;
      continue;
    }
    auto offer = new_struct<galley_kernel_plan>();
    galley_error error = GALLEY_ERROR_INIT;
    galley_status status = GALLEY_OK;
    const Status asked =
        call_plugin(k.caller(), std::string("query of kernel '") + kernel->name + "' for '" + i.name + "'", [&](galley_error* said) {
          status = kernel->query(kernel->self, question.nodes.data(), n, target.get(), &offer, said);
          error = *said;
          return status == GALLEY_UNSUPPORTED || status == GALLEY_INVALID ? GALLEY_OK : status;
        });
    TRY_STATUS(asked);
    if (status != GALLEY_OK) {
      choice.refusals += std::string("; ") + kernel->name + ": " + error.text;
      continue;
    }
    if (const uint64_t unknown = offer.flags & GALLEY_MUST_UNDERSTAND & ~GALLEY_PLAN_KNOWN)
      return plugin_error("plugin '" + k.plugin->manifest.id + "': kernel '" + kernel->name +
                          "' answers with flags that this version does not know: " + std::to_string(unknown));
    for (const auto& [bytes, what] : {std::pair(offer.workspace_bytes, "workspace"), std::pair(offer.constants_bytes, "constants")})
      if (bytes < 0)
        return plugin_error("plugin '" + k.plugin->manifest.id + "': kernel '" + kernel->name + "' asks for " + std::to_string(bytes) +
                            " bytes of " + what + " for '" + i.name + "'");
    if ((offer.flags & GALLEY_PLAN_VARIES) && target_.deterministic) {
      choice.refusals += std::string("; ") + kernel->name + ": it has other bytes in another run, which takes 'deterministic = false'";
      continue;
    }
    if (offer.workspace_bytes > target_.workspace_budget) {
      choice.refusals += std::string("; ") + kernel->name + ": needs " + std::to_string(offer.workspace_bytes) + " bytes of workspace";
      continue;
    }
    const galley_kernel* best = choice.kernel;
    const bool better =
        !best || offer.priority > plan.priority || (offer.priority == plan.priority && std::string_view(kernel->name) < best->name);
    if (better) {
      choice.kernel = kernel;
      choice.plugin = k.plugin;
      plan = offer;
    }
  }
  choice.workspace = plan.workspace_bytes;
  choice.constants = plan.constants_bytes;
  choice.capturable = !(plan.flags & GALLEY_PLAN_NOT_CAPTURABLE);
  choice.varies = plan.flags & GALLEY_PLAN_VARIES;
  choice.priority = plan.priority;
  return &choice;
}

}  // namespace galley
