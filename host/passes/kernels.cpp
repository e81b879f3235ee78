#include "host/passes/kernels.hpp"

#include <algorithm>
#include <deque>

#include "galley/kernel.h"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

/// An instruction as `query` sees it, and all that it sees as a string.
struct Question {
  Question(const Instruction& i, const std::vector<ProgramTensor>& tensors, int64_t length) {
    key = i.op->name;
    key += " " + std::to_string(i.flags) + " " + std::to_string(i.first_row) + " " + std::to_string(i.components);
    inputs.reserve(i.inputs.size());  // it stays where it is: operands that are stored point to their components, which come behind
    for (const Operand& o : i.inputs) inputs.push_back(describe(o, tensors));
    key += ">";
    for (const Operand& o : i.outputs) outputs.push_back(describe(o, tensors));
    attrs = i.attrs.view();
    key += ";" + i.attrs.key();
    view = {sizeof(galley_node_view),
            1,
            i.op->name,
            i.name.c_str(),
            inputs.data(),
            outputs.data(),
            attrs.data(),
            static_cast<uint32_t>(inputs.size() - i.components),
            static_cast<uint32_t>(outputs.size()),
            static_cast<uint32_t>(attrs.size()),
            i.flags,
            i.first_row,
            length,
            i.block};
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  const galley_operand* describe(const Operand& o, const std::vector<ProgramTensor>& tensors) {
    if (!o.present() && !o.stored) {
      key += "|-";
      return nullptr;
    }
    const uint32_t access = std::max(o.access, o.later);
    const std::string& name = o.present() ? tensors[static_cast<size_t>(o.tensor)].name : o.stored->format;
    operands.push_back(operand_view(o, name.c_str(), nullptr, access));
    key += "|" + std::to_string(o.dtype) + "," + std::to_string(access);
    for (const int64_t extent : o.shape) key += "," + std::to_string(extent);
    if (o.stored) {
      key += "," + o.stored->format + o.stored->attrs.key();
      operands.back().components = inputs.data() + o.stored->first;
      formats = true;
    }
    return &operands.back();
  }

  std::string key;
  bool formats = false;
  std::deque<galley_operand> operands;
  std::vector<const galley_operand*> inputs, outputs;
  std::vector<const galley_attr*> attrs;
  galley_node_view view = {};
};

}  // namespace

Kernels::Kernels(Plugins& plugins, Strategies strategies, const Target& target, const CompileOptions& options, int64_t length)
    : plugins_(plugins), target_(target), length_(length) {
  std::set<const Plugin*> used;
  for (const auto& s : strategies) used.insert(&s->plugin());
  admits_ = [used, built_in = options.built_in, asked = options.kernels, device = plugins.device(target.device).plugin](const Plugin& p) {
    return used.contains(&p) || &p == device || asked.contains(p.manifest.id) || (built_in && built_in(p));
  };
}

bool Kernels::admitted(const Plugin& plugin, const galley_op* op) {
  if (admits_(plugin)) return true;
  const Registered<galley_op> registered = plugins_.op(op->name);
  return registered.table == op && registered.plugin == &plugin;
}

Result<const KernelChoice*> Kernels::choose(const Instruction& i, const std::vector<ProgramTensor>& tensors) {
  const Question question(i, tensors, length_);
  const auto [found, fresh] = chosen_.try_emplace(question.key);
  KernelChoice& choice = found->second;
  if (!fresh) return &choice;
  const galley_node_view* nodes[] = {&question.view};
  const TargetView target(target_);
  galley_kernel_plan plan = {};
  for (const Registered<galley_kernel>& k : plugins_.kernels(i.op->name, target_.device, target_.isa)) {
    const galley_kernel* kernel = k.table;
    if (question.formats && !(kernel->flags & GALLEY_KERNEL_FORMATS)) continue;
    if (!admitted(*k.plugin, i.op)) {
      choice.refusals +=
          std::string("; ") + kernel->name + ": the recipe does not ask for kernels of plugin '" + k.plugin->manifest.id + "'";
      continue;
    }
    auto offer = new_struct<galley_kernel_plan>();
    galley_error error = GALLEY_ERROR_INIT;
    galley_status status = GALLEY_OK;
    const Status asked =
        call_plugin(k.caller(), std::string("query of kernel '") + kernel->name + "' for '" + i.name + "'", [&](galley_error* said) {
          status = kernel->query(nodes, 1, target.get(), &offer, said);
          error = *said;
          return status == GALLEY_UNSUPPORTED || status == GALLEY_INVALID ? GALLEY_OK : status;
        });
    TRY_STATUS(asked);
    if (status != GALLEY_OK) {
      choice.refusals += std::string("; ") + kernel->name + ": " + error.text;
      continue;
    }
    if (const uint64_t unknown = offer.flags & GALLEY_MUST_UNDERSTAND_64 & ~GALLEY_PLAN_KNOWN)
      return plugin_error("plugin '" + k.plugin->manifest.id + "': kernel '" + kernel->name +
                          "' answers with flags that this version does not know: " + std::to_string(unknown));
    if (offer.constants_bytes > 0) {
      choice.refusals += std::string("; ") + kernel->name + ": asks for constants, which this version does not plan yet";
      continue;
    }
    if (offer.workspace_bytes < 0)
      return plugin_error("plugin '" + k.plugin->manifest.id + "': kernel '" + kernel->name + "' asks for " +
                          std::to_string(offer.workspace_bytes) + " bytes of workspace for '" + i.name + "'");
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
  return &choice;
}

}  // namespace galley
