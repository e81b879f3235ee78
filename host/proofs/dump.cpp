#include "host/proofs/dump.hpp"

#include <cstdio>

#include "host/plugins/attributes.hpp"
#include "host/proofs/describe.hpp"

namespace galley {
namespace {

std::string flags_text(uint64_t flags) {
  static constexpr std::pair<uint64_t, const char*> names[] = {
      {GALLEY_TENSOR_TRAINABLE, "trained"},           {GALLEY_TENSOR_WRITTEN, "written"},
      {GALLEY_TENSOR_NO_DECAY, "no decay"},           {GALLEY_TENSOR_ZERO_GRADIENT, "zero gradient"},
      {GALLEY_TENSOR_LATE_GRADIENT, "late gradient"}, {GALLEY_TENSOR_BLOCK_INPUT, "block input"},
      {GALLEY_TENSOR_EMBEDDING, "embedding"},         {GALLEY_TENSOR_HEAD, "head"},
      {GALLEY_TENSOR_NON_NEGATIVE, "non-negative"}};
  std::string out;
  for (const auto& [flag, name] : names)
    if (flags & flag) out += std::string(", ") + name;
  return out;
}

std::string names_text(const Graph& graph, const std::vector<galley_tensor>& tensors, bool types) {
  std::string out;
  for (const galley_tensor t : tensors) {
    out += out.empty() ? "" : ", ";
    out += t ? graph.tensor(t).name : "-";
    if (t && types) out += " " + type_text(graph.tensor(t)) + flags_text(graph.tensor(t).flags & GALLEY_TENSOR_BLOCK_INPUT);
  }
  return out;
}

std::string by(const Compilation& c, int use) { return use == no_use ? "" : "  by " + label(c.strategies, use); }

void add_node(const Compilation& c, const GraphNode& node, std::string* out) {
  *out += "  " + node.name + ": " + node.op->name + "(" + names_text(c.graph, node.inputs, false) + ")";
  std::string attrs;
  for (const galley_attr* a : node.attr_view) attrs += (attrs.empty() ? "" : " ") + std::string(a->name) + "=" + attr_text(*a);
  if (!attrs.empty()) *out += " {" + attrs + "}";
  if (!node.outputs.empty()) *out += " -> " + names_text(c.graph, node.outputs, true);
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (chosen(node.accumulate, i)) *out += " +" + std::to_string(i);
  if (node.block >= 0) *out += "  block " + std::to_string(node.block);
  *out += by(c, node.use) + "\n";
}

std::string ref_text(const Tensors& tensors, const Ref& r) {
  if (!r.tensor) return "-";
  const GraphTensor& t = tensors[r.tensor];
  std::string out = t.name;
  if (r.rows >= 0) out += "[" + std::to_string(r.row) + ", " + std::to_string(r.row + r.rows) + ")";
  return out;
}

void add_items(const Compilation& c, const char* title, const std::vector<Item>& items, std::string* out) {
  if (items.empty()) return;
  const Tensors tensors = c.tensors();
  *out += std::string(title) + "\n";
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    *out += "  " + std::to_string(i) + " " + item.node->name + ": " + item.node->op->name + "(";
    for (size_t k = 0; k < item.inputs.size(); ++k) *out += (k ? ", " : "") + ref_text(tensors, item.inputs[k]);
    *out += ")";
    for (size_t k = 0; k < item.outputs.size(); ++k)
      *out += (k ? ", " : " -> ") + std::string(chosen(item.accumulate, k) ? "+" : "") + ref_text(tensors, item.outputs[k]);
    if (item.first_row) *out += "  row " + std::to_string(item.first_row);
    *out += "\n";
  }
}

/// ", divided at 16384, 32768, 32768; of process 2: [0, 16384)", or why it is not though it was claimed.
std::string cut_text(const Compilation& c, galley_tensor t) {
  const auto ends = [](const Cut& cut) {
    std::string out;
    for (const int64_t end : cut.ends) out += (out.empty() ? "" : ", ") + std::to_string(end);
    const NumberRange own = cut.own();
    return out + "; process " + std::to_string(cut.rank) + " has [" + std::to_string(own.first) + ", " +
           std::to_string(own.first + own.count) + ")";
  };
  if (const Cut* cut = c.cuts.of(t)) return ", divided at " + ends(*cut);
  if (const auto at = c.cuts.gathered.find(t); at != c.cuts.gathered.end()) return ", whole, updated in parts: " + ends(at->second);
  if (const auto at = c.cuts.whole.find(t); at != c.cuts.whole.end()) return ", whole, because " + at->second;
  return "";
}

std::string dump_graph(const Compilation& c) {
  static constexpr const char* kinds[] = {"?", "parameter", "state", "gradient", "constant", "transient", "input", "scalar"};
  std::string out = "tensors\n";
  for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t) {
    const GraphTensor& x = c.graph.tensor(t);
    if (x.kind == GALLEY_KIND_TRANSIENT || x.kind == GALLEY_KIND_SCALAR) continue;
    out += std::string("  ") + kinds[x.kind] + " " + x.name + " " + type_text(x) + flags_text(x.flags);
    if (!x.storage.format.empty()) out += ", stored as " + x.storage.format;
    if (!x.storage.placement.empty()) out += ", in " + x.storage.placement;
    out += cut_text(c, t);
    if (x.update_use != no_use) out += ", updated by " + label(c.strategies, x.update_use);
    if (!x.initial.op.empty()) out += ", begins as " + x.initial.op + "(" + names_text(c.graph, x.initial.inputs, false) + ")";
    out += by(c, x.use) + "\n";
  }
  for (size_t s = 0; s < section_names.size(); ++s) {
    const auto& nodes = c.graph.section(static_cast<Section>(s));
    if (nodes.empty()) continue;
    out += std::string(section_names[s]) + "\n";
    for (const galley_node n : nodes) add_node(c, c.graph.node(n), &out);
  }
  return out;
}

std::string dump_orders(const Compilation& c) {
  std::string out;
  add_items(c, "micro, forward", c.orders.forward, &out);
  add_items(c, "micro, head", c.orders.head, &out);
  add_items(c, "micro, backward", c.orders.backward, &out);
  add_items(c, "update", c.orders.update, &out);
  add_items(c, "inference", c.orders.inference, &out);
  add_items(c, "prompt", c.orders.prompt, &out);
  add_items(c, "next", c.orders.next, &out);
  return out;
}

std::string dump_choices(const Compilation& c) {
  std::string out;
  for (size_t i = 0; i < c.choices.size(); ++i) {
    const galley_saved_item& s = c.saved.items[i];
    const std::string choice = choice_text(c, c.choices[i]);
    out += choice + std::string(choice.size() < 15 ? 15 - choice.size() : 1, ' ') + s.name + " " + std::to_string(s.bytes) + " bytes";
    if (s.block >= 0) out += ", block " + std::to_string(s.block);
    if (s.flags & GALLEY_SAVED_BLOCK_INPUT) out += ", block input";
    out += "\n";
  }
  return out;
}

std::string dump_program(const Compilation& c) {
  std::string out;
  for (size_t s = 0; s < segment_names.size(); ++s) out += describe(c.program, static_cast<SegmentKind>(s));
  return out;
}

}  // namespace

std::string dump_pass(const Compilation& c, const PassInfo& pass) {
  switch (pass.leaves) {
    case Leaves::Graph: return dump_graph(c);
    case Leaves::Orders: return dump_orders(c);
    case Leaves::Choices: return dump_choices(c);
    case Leaves::Operands:
    case Leaves::Program: break;
  }
  return dump_program(c);
}

std::string dump_plan(const Program& program, const Plan& plan) {
  std::string out = describe_tensors(program, plan);
  for (size_t s = 0; s < segment_names.size(); ++s) out += describe(program, plan, static_cast<SegmentKind>(s));
  return out;
}

}  // namespace galley
