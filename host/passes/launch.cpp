#include "host/passes/launch.hpp"

namespace galley {

std::vector<size_t> joined_inputs(const std::vector<const Instruction*>& nodes) {
  size_t own = 0, components = 0;
  for (const Instruction* node : nodes) components += node->launch()->nodes[0].inputs.count;
  std::vector<size_t> out;
  for (const Instruction* node : nodes) {
    const size_t end = own + node->launch()->nodes[0].inputs.count;
    for (size_t k = 0; k < node->inputs.size(); ++k) out.push_back(own < end ? own++ : components++);
  }
  return out;
}

Instruction join(const std::vector<const Instruction*>& nodes, const PlannedLaunch& launch) {
  const Instruction& first = *nodes.front();
  Instruction out;
  Launch& made = *out.launch();
  made.nodes.clear();
  made.links = launch.links;
  out.strategy = first.strategy;
  out.recomputed = first.recomputed;
  const std::vector<size_t> at = joined_inputs(nodes);
  out.inputs.resize(at.size());
  size_t number = 0, own = 0;
  for (const Instruction* node : nodes) {
    LaunchNode& copy = made.nodes.emplace_back(node->launch()->nodes[0]);
    copy.inputs.first = own;
    copy.outputs.first = out.outputs.size();
    own += copy.inputs.count;
    out.outputs.insert(out.outputs.end(), node->outputs.begin(), node->outputs.end());
    for (const Operand& input : node->inputs) {
      Operand& o = out.inputs[at[number + static_cast<size_t>(&input - node->inputs.data())]] = input;
      if (!o.format) continue;
      auto format = std::make_shared<OperandFormat>(*o.format);
      format->view = format->attrs.view();
      format->first = at[number + o.format->first];
      o.format = std::move(format);
    }
    number += node->inputs.size();
    made.flops += node->launch()->flops;
    out.rounded = out.rounded || node->rounded;
    if (node->strategy != out.strategy) out.strategy.clear();
  }
  for (size_t k = 0; k < launch.marks.size(); ++k) {
    Operand& o = k < at.size() ? out.inputs[at[k]] : out.outputs[k - at.size()];
    o.inner = launch.marks[k].inner;
    if (launch.marks[k].gone) o.tensor = no_tensor;
  }
  for (size_t k = 0; k < launch.links; ++k) out.name += (k ? ">" : "") + nodes[k]->name;
  if (nodes.size() > launch.links) out.name += " and " + std::to_string(nodes.size() / launch.links - 1) + " more";
  return out;
}

Result<const Joints::Joint*> Joints::joint(const std::vector<const Instruction*>& nodes, const PlannedLaunch& launch) {
  std::vector<uint64_t> key = {launch.links};
  for (const Instruction* node : nodes) key.push_back(reinterpret_cast<uintptr_t>(node));
  for (const Mark& mark : launch.marks) key.push_back(uint64_t{mark.inner} << 1 | mark.gone);
  const auto [found, fresh] = joints_.try_emplace(std::move(key));
  if (fresh) {
    const Instruction joined = join(nodes, launch);
    found->second.choice = TRY(c_.kernels.choose(joined, c_.program.tensors));
    found->second.take_overs = take_overs(c_.program, joined);
  }
  return &found->second;
}

const std::vector<TakeOver>& Joints::alone(const Instruction* i) {
  const auto [found, fresh] = alone_.try_emplace(i);
  if (fresh) found->second = take_overs(c_.program, *i);
  return found->second;
}

}  // namespace galley
