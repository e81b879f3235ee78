#include "peft/modules.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "galley/cpp/patterns.hpp"

namespace galley::peft {
namespace {

using namespace sdk;

const char* const kPrefix = "base_model.model.";

int64_t attr(const galley_node_info& node, const char* name) {
  for (uint32_t i = 0; i < node.n_attrs; ++i)
    if (galley_same_text(node.attrs[i]->name, name) && node.attrs[i]->type == GALLEY_ATTR_I64 && node.attrs[i]->count)
      return *static_cast<const int64_t*>(node.attrs[i]->data);
  return 0;
}

/// Tensors that are made of an attention's output, and those of which an attention's input is made, without a linear layer between.
class AroundAttention {
 public:
  explicit AroundAttention(const GraphReader& graph) {
    std::vector<galley_node_info> nodes;
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL))
      nodes.push_back(graph.node(n));
    for (const galley_node_info& node : nodes)
      if (is_attention(node) || (!is_linear(node) && any(made_of_, node.inputs, node.n_inputs)))
        made_of_.insert(node.outputs, node.outputs + node.n_outputs);
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
      if (is_attention(*node) || (!is_linear(*node) && any(read_by_, node->outputs, node->n_outputs)))
        read_by_.insert(node->inputs, node->inputs + node->n_inputs);
  }
  bool makes(galley_tensor y) const { return read_by_.count(y) != 0; }
  bool reads(galley_tensor x) const { return made_of_.count(x) != 0; }

 private:
  static bool is_linear(const galley_node_info& node) { return node.op_flags & GALLEY_OP_LINEAR; }
  static bool is_attention(const galley_node_info& node) { return galley_same_text(node.op, "attention"); }
  static bool any(const std::set<galley_tensor>& set, const galley_tensor* tensors, uint32_t n) {
    return std::any_of(tensors, tensors + n, [&](galley_tensor t) { return t && set.count(t); });
  }
  std::set<galley_tensor> made_of_, read_by_;
};

}  // namespace

std::string prefixed(const std::string& name) { return kPrefix + name; }
std::string without_prefix(const std::string& name) { return name.rfind(kPrefix, 0) == 0 ? name.substr(std::string(kPrefix).size()) : ""; }
bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), std::string::npos, end) == 0;
}

std::vector<Module> linear_modules(const GraphReader& graph, const Stored& stored) {
  const AroundAttention attention(graph);
  const auto has = [&](const std::string& module) {
    const auto at = stored.lower_bound(prefixed(module) + ".");
    return at != stored.end() && at->first.rfind(prefixed(module) + ".", 0) == 0;
  };
  std::vector<Module> out;
  std::set<std::string> names;
  for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
    const galley_node_info node = graph.node(n);
    if (!(node.op_flags & GALLEY_OP_LINEAR) || node.n_inputs < 2) continue;
    const galley_tensor_info w = graph.info(node.inputs[1]);
    const bool transposed = attr(node, "transposed") != 0, tied = w.flags & GALLEY_TENSOR_EMBEDDING;
    Module m = {node.name,
                node.inputs[0],
                node.inputs[1],
                node.n_inputs > 2 ? node.inputs[2] : 0,
                node.outputs[0],
                n,
                w.shape[transposed ? 0 : 1],
                w.shape[transposed ? 1 : 0],
                transposed,
                tied,
                (w.flags & GALLEY_TENSOR_HEAD) != 0,
                attention.makes(node.outputs[0]) || attention.reads(node.inputs[0])};
    if (ends_with(m.name, ".base_layer")) m.name = without_prefix(m.name.substr(0, m.name.size() - 11));  // an adapter's, of a head
    if (w.kind == GALLEY_KIND_PARAMETER && !tied && ends_with(w.name, ".weight")) {
      const std::string in_files = module_of(w.name), taken = without_prefix(in_files);
      if (!taken.empty() && (m.head || graph.find(taken + ".weight"))) m.name = taken;  // trained whole beside an adapter
      else if (!m.head || m.name.rfind(in_files, 0) == 0 || !taken.empty() || has(in_files)) m.name = in_files;
    }
    if (m.name.rfind("base_model.", 0) == 0) continue;  // an adapter's own
    if (names.insert(m.name).second) out.push_back(std::move(m));
  }
  return out;
}

std::vector<std::string> names_of(const std::vector<Module>& modules) {
  std::vector<std::string> out;
  for (const Module& m : modules) out.push_back(m.name);
  return out;
}

std::vector<std::string> short_names(const std::vector<Module>& all, const std::vector<const Module*>& chosen) {
  const std::set<const Module*> meant(chosen.begin(), chosen.end());
  std::map<std::string, bool> alone;  // by word: a model has few, and many modules
  const auto is_alone = [&](const std::string& word) {
    const auto [at, fresh] = alone.try_emplace(word, true);
    if (fresh)
      at->second = std::all_of(all.begin(), all.end(), [&](const Module& other) {
        return (other.name != word && !ends_with(other.name, "." + word)) || meant.count(&other);
      });
    return at->second;
  };
  std::set<std::string> out;
  for (const Module* m : chosen) {
    const std::string word = m->name.substr(m->name.rfind('.') + 1);
    const bool number = word.find_first_not_of("0123456789") == std::string::npos;
    out.insert(!number && is_alone(word) ? word : m->name);
  }
  return {out.begin(), out.end()};
}

std::vector<Owned> owned_parameters(const GraphReader& graph, const Stored& stored) {
  std::vector<Owned> out;
  std::map<galley_tensor, std::string> also, heads;
  const auto add = [&](galley_tensor t, const std::string& name, bool of_tied_head) {
    Owned o = {t, name, also[t], {}, of_tied_head};
    const std::string& longest = o.also.empty() ? name : o.also;
    for (size_t dot = longest.find('.'); dot != std::string::npos; dot = longest.find('.', dot + 1))
      o.modules.push_back(longest.substr(0, dot));
    out.push_back(std::move(o));
  };
  const std::vector<Module> modules = linear_modules(graph, stored);
  for (const Module& m : modules) {
    if (m.head && !m.tied) heads[m.weight] = m.name + ".weight";
    if (m.bias && m.name + ".bias" != graph.info(m.bias).name) also[m.bias] = m.name + ".bias";
  }
  for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
    const galley_tensor_info info = graph.info(t);
    if (info.kind != GALLEY_KIND_PARAMETER || std::string(info.name).rfind("base_model.", 0) == 0) continue;
    const auto head = heads.find(t);
    add(t, head == heads.end() ? info.name : head->second, false);
  }
  for (const Module& m : modules)
    if (m.tied) add(m.weight, m.name + ".weight", true);
  return out;
}

}  // namespace galley::peft
