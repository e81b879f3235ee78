// Updates in backward: where a gradient is to live no longer than its last contribution (GALLEY_GRADIENT_IMMEDIATE), the nodes that update
// its parameter move from the update into backward, after the last node that needs either (Lv et al., "Full Parameter Fine-tuning for
// Large Language Models with Limited Resources", 2023, arXiv:2306.09782). So no two such gradients need be there at once.
//
// Within a block of the model they wait for each other, so that one launch makes them all, as long as all gradients that are there take no
// more than twice the bytes of the largest.
//
// What they read must be there by then: an update that depends on other parameters, by a norm over all gradients for instance, cannot move.
// What is made of numbers that are there before the first micro-batch (a rate that falls with the step) moves into the window part.
#include <algorithm>
#include <map>
#include <set>

#include "galley/op.h"
#include "host/passes/passes.hpp"

namespace galley {
namespace {

class Mover {
 public:
  explicit Mover(Compilation& c) : c_(c), graph_(c.graph), owner_(graph_.tensor_count() + 1, 0) {}

  Status run() {
    for (const galley_tensor p : c_.decisions.trainable)
      if (const galley_tensor g = graph_.tensor(p).gradient; g && graph_.tensor(g).immediate) owner_[p] = owner_[g] = p;
    if (std::all_of(owner_.begin(), owner_.end(), [](galley_tensor p) { return p == 0; })) return ok();
    if (c_.decisions.micro_batches > 1)
      return recipe_error("gradients are to be used as soon as they are there, but a window has " +
                              std::to_string(c_.decisions.micro_batches) + " micro-batches that add to them",
                          without(c_.decisions.window_use));
    for (galley_tensor t = 1; t <= graph_.tensor_count(); ++t) {
      const GraphTensor& x = graph_.tensor(t);
      if (x.kind == GALLEY_KIND_STATE && x.parameter) owner_[t] = owner_[x.parameter];
    }
    std::map<galley_tensor, std::vector<galley_node>> moved;
    std::vector<galley_node> left;
    for (const galley_node n : graph_.section(Section::Update)) {
      const galley_tensor p = TRY(owner_of(graph_.node(n)));
      (p ? moved[p] : left).push_back(n);
    }
    hoist(moved, &left);
    for (const auto& [p, nodes] : moved)
      for (const galley_node n : nodes) TRY_STATUS(check_reads(graph_.node(n)));
    graph_.section(Section::Update) = std::move(left);
    insert(moved);
    return ok();
  }

 private:
  /// The parameter whose update a node is part of; 0: none that moves.
  Result<galley_tensor> owner_of(const GraphNode& node) {
    galley_tensor owner = 0;
    for (const auto* operands : {&node.inputs, &node.outputs})
      for (const galley_tensor t : *operands) {
        const galley_tensor of = t ? owner_[t] : 0;
        if (!of || of == owner) continue;
        if (owner)
          return recipe_error("'" + node.name + "'" + by(node) + " joins the updates of '" + graph_.tensor(owner).name + "' and '" +
                                  graph_.tensor(of).name + "', so neither can be done in backward",
                              without(node.use));
        owner = of;
      }
    if (owner)
      for (const galley_tensor t : node.outputs)
        if (t && graph_.tensor(t).kind == GALLEY_KIND_TRANSIENT) owner_[t] = owner;
    for (size_t i = 0; i < node.inputs.size() + node.outputs.size(); ++i) {
      const bool input = i < node.inputs.size();
      const galley_tensor t = input ? node.inputs[i] : node.outputs[i - node.inputs.size()];
      if (t && graph_.tensor(t).kind == GALLEY_KIND_SCALAR && (!input || updates_input(node.op, i))) scalars_.emplace(t, node.id);
    }
    return owner;
  }

  /// Whether a node of the update makes transients of nothing but what is there when a window begins.
  bool made_before(const GraphNode& node, const std::set<galley_tensor>& before) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const galley_tensor t = node.inputs[i];
      if (!t) continue;
      const GraphTensor& x = graph_.tensor(t);
      const bool there = x.kind == GALLEY_KIND_CONSTANT || (x.kind == GALLEY_KIND_SCALAR && !scalars_.contains(t)) || before.contains(t);
      if (!there || updates_input(node.op, i)) return false;
    }
    return std::all_of(node.outputs.begin(), node.outputs.end(),
                       [&](galley_tensor t) { return !t || graph_.tensor(t).kind == GALLEY_KIND_TRANSIENT; });
  }

  /// Of what stays in the update, moves into the window part what moved nodes read and can be made there.
  void hoist(const std::map<galley_tensor, std::vector<galley_node>>& moved, std::vector<galley_node>* left) {
    std::set<galley_tensor> before, read;
    std::vector<galley_node> candidates;
    for (const galley_node n : *left) {
      const GraphNode& node = graph_.node(n);
      if (!made_before(node, before)) continue;
      before.insert(node.outputs.begin(), node.outputs.end());
      candidates.push_back(n);
    }
    for (const auto& [p, nodes] : moved)
      for (const galley_node n : nodes) read.insert(graph_.node(n).inputs.begin(), graph_.node(n).inputs.end());
    std::vector<galley_node> hoisted;
    for (auto n = candidates.rbegin(); n != candidates.rend(); ++n) {
      GraphNode& node = graph_.node(*n);
      if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](galley_tensor t) { return t && read.contains(t); })) continue;
      read.insert(node.inputs.begin(), node.inputs.end());
      node.section = Section::Window;
      hoisted.push_back(*n);
    }
    std::erase_if(*left, [&](galley_node n) { return graph_.node(n).section == Section::Window; });
    graph_.section(Section::Window).insert(graph_.section(Section::Window).end(), hoisted.rbegin(), hoisted.rend());
    for (const galley_node n : *left)
      for (const galley_tensor t : graph_.node(n).outputs)
        if (t && graph_.tensor(t).kind == GALLEY_KIND_TRANSIENT) late_.emplace(t, n);
  }

  /// What the update writes of the step's scalars is not there before all gradients are, nor what it makes of them and of states.
  Status check_reads(const GraphNode& node) const {
    for (const galley_tensor t : node.inputs) {
      if (const auto maker = late_.find(t); maker != late_.end()) {
        const GraphNode& other = graph_.node(maker->second);
        return recipe_error(between(other.use) + "'" + node.name + "'" + by(node) + " is to be done in backward, but reads '" +
                                graph_.tensor(t).name + "', which '" + other.name + "'" + by(other) +
                                " makes in the update, for all parameters",
                            without(other.use));
      }
      const auto writer = scalars_.find(t);
      if (writer == scalars_.end()) continue;
      const GraphNode& other = graph_.node(writer->second);
      return recipe_error(between(other.use) + "'" + node.name + "'" + by(node) + " is to be done in backward, but reads '" +
                              graph_.tensor(t).name + "', which '" + other.name + "'" + by(other) + " makes of all gradients",
                          without(other.use));
    }
    return ok();
  }

  /// The strategy that wants updates in backward.
  int wants_immediate() const {
    int wants = no_use;
    for (const galley_tensor p : c_.decisions.trainable)
      if (const galley_tensor g = graph_.tensor(p).gradient; g && graph_.tensor(g).immediate) wants = graph_.tensor(g).immediate_use;
    return wants;
  }

  /// What is wrong in a person's words, where both strategies are known: the details follow it.
  std::string between(int use) const {
    const int wants = wants_immediate();
    if (use == no_use || wants == no_use) return "";
    return label(c_.strategies, wants) + " updates each parameter before all gradients are there, and " + label(c_.strategies, use) +
           " needs all of them: ";
  }

  /// The nearest recipes that can be: without the one, or without the other.
  std::string without(int use) const {
    const int wants = wants_immediate();
    if (use == no_use || wants == no_use) return "let the gradients live until the end of the window";
    return "leave out " + label(c_.strategies, use) + ", or " + label(c_.strategies, wants) + ", which wants updates in backward";
  }

  std::string by(const GraphNode& node) const { return node.use == no_use ? "" : " of " + label(c_.strategies, node.use); }

  /// The parameter whose numbers a tensor of forward or backward is, or whose gradient.
  galley_tensor parameter_of(galley_tensor t) const {
    const GraphTensor& x = graph_.tensor(t);
    if (x.storage.numbers_of) return parameter_of(x.storage.numbers_of);
    if (x.kind == GALLEY_KIND_CONSTANT && x.initial.inputs.size() == 1) return parameter_of(x.initial.inputs[0]);
    return x.kind == GALLEY_KIND_GRADIENT ? x.parameter : t;
  }

  void insert(const std::map<galley_tensor, std::vector<galley_node>>& moved) {
    std::map<galley_tensor, size_t> first, last;
    const std::vector<galley_node> backward = std::move(graph_.section(Section::Backward));
    for (size_t i = 0; i < backward.size(); ++i)
      for (const auto* operands : {&graph_.node(backward[i]).inputs, &graph_.node(backward[i]).outputs})
        for (const galley_tensor t : *operands)
          if (t) {
            last[parameter_of(t)] = i;
            first.try_emplace(t, i);
          }
    std::map<size_t, std::vector<galley_tensor>> after;
    std::map<size_t, int64_t> begun;  // bytes of the gradients that a node is the first to write
    // Of a block: the most bytes of gradients that are made of one tensor, perhaps by one launch.
    std::map<int64_t, int64_t> joint;
    std::map<std::pair<int64_t, galley_tensor>, int64_t> made_of;
    int64_t largest = 0;
    for (const auto& [p, nodes] : moved) {
      after[last.at(p)].push_back(p);
      const size_t begin = first.at(graph_.tensor(p).gradient);
      begun[begin] += gradient_bytes(p);
      const GraphNode& node = graph_.node(backward[begin]);
      for (const galley_tensor t : node.inputs)
        if (t) joint[node.block] = std::max(joint[node.block], made_of[{node.block, t}] += gradient_bytes(p));
      largest = std::max(largest, gradient_bytes(p));
    }
    std::vector<galley_node>& out = graph_.section(Section::Backward);
    out.clear();
    std::vector<galley_tensor> waiting;
    int64_t bytes = 0;  // of all gradients that are there
    const auto update = [&] {
      for (const galley_tensor p : waiting) {
        out.insert(out.end(), moved.at(p).begin(), moved.at(p).end());
        bytes -= gradient_bytes(p);
      }
      waiting.clear();
    };
    for (size_t i = 0; i < backward.size(); ++i) {
      const int64_t block = graph_.node(backward[i]).block;
      if (const auto more = begun.find(i); more != begun.end()) {
        if (bytes + joint[block] > 2 * largest) update();
        bytes += more->second;
      }
      if (i && block != graph_.node(backward[i - 1]).block) update();
      out.push_back(backward[i]);
      if (const auto here = after.find(i); here != after.end()) waiting.insert(waiting.end(), here->second.begin(), here->second.end());
      if (block < 0) update();
    }
    update();
  }

  int64_t gradient_bytes(galley_tensor parameter) const { return graph_.tensor(graph_.tensor(parameter).gradient).bytes(); }

  Compilation& c_;
  Graph& graph_;
  std::vector<galley_tensor> owner_;              ///< by tensor: the parameter to whose update it belongs
  std::map<galley_tensor, galley_node> scalars_;  ///< that the update writes, and by which node first
  std::map<galley_tensor, galley_node> late_;     ///< transients that the update makes after backward, and by which node
};

}  // namespace

Status immediate(Compilation& c) {
  if (!c.trains()) return ok();
  return Mover(c).run();
}

}  // namespace galley
