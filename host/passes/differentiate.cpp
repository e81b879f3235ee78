// The backward graph.
//
// Reverse accumulation over the forward section. Each tensor that needs a gradient has at most one that is pending; contributions are
// joined by letting the next rule add into the tensor at hand, where nobody else still waits for it, and by an add node where not.
#include <map>

#include "galley/op.h"
#include "host/passes/gradient_rule.hpp"
#include "host/passes/passes.hpp"

namespace galley {
namespace {

class Differentiator {
 public:
  explicit Differentiator(Compilation& c) : c_(c), graph_(c.graph) {}

  Status run(const std::vector<galley_tensor>& trainable) {
    for (const galley_tensor t : trainable) buffers_[t] = TRY(buffer(t));
    mark_needs(trainable);
    const std::vector<galley_node> forward = graph_.section(Section::Forward);
    for (auto it = forward.rbegin(); it != forward.rend(); ++it) TRY_STATUS(step(*it));
    for (const galley_tensor t : trainable)
      if (!written_[t])
        return recipe_error("'" + graph_.tensor(t).name + "' is to be trained, but the loss does not depend on it", "freeze it");
    return ok();
  }

 private:
  Result<galley_tensor> buffer(galley_tensor parameter) {
    const GraphTensor& p = graph_.tensor(parameter);
    GraphTensor g;
    g.name = "grad." + p.name;
    g.shape = p.shape;
    g.kind = GALLEY_KIND_GRADIENT;
    g.parameter = parameter;
    const galley_tensor made = TRY(graph_.make(std::move(g)));
    graph_.tensor(parameter).gradient = made;
    return made;
  }

  void mark_needs(const std::vector<galley_tensor>& trainable) {
    needs_.assign(graph_.tensor_count() + 1, false);
    for (const galley_tensor t : trainable) needs_[t] = true;
    for (const galley_node n : graph_.section(Section::Forward)) {
      const GraphNode& node = graph_.node(n);
      bool any = false;
      for (size_t i = 0; i < node.inputs.size(); ++i) any = any || input_needs(node, i);
      if (!any) continue;
      for (const galley_tensor t : node.outputs)
        if (t && graph_.tensor(t).kind == GALLEY_KIND_TRANSIENT) needs_[t] = true;
    }
  }

  bool input_needs(const GraphNode& node, size_t i) const {
    const galley_operand_rule* rule = input_rule(node.op, i);
    return node.inputs[i] && needs_[node.inputs[i]] && !(rule && rule->flags & GALLEY_OPERAND_NO_GRADIENT);
  }

  void set(galley_tensor of, galley_tensor gradient) {
    if (const auto it = pending_.find(of); it != pending_.end()) --owners_[it->second];
    pending_[of] = gradient;
    ++owners_[gradient];
  }

  Status step(galley_node n) {
    const GraphNode& node = graph_.node(n);
    GradientCall call;
    call.node = n;
    call.d_outputs.assign(node.outputs.size(), 0);
    bool arrives = node.op->flags & GALLEY_OP_LOSS;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (const auto it = pending_.find(node.outputs[i]); node.outputs[i] && it != pending_.end()) {
        call.d_outputs[i] = it->second;
        arrives = true;
      }
    }
    call.need.assign(node.inputs.size(), 0);
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      call.need[i] = input_needs(node, i);
      any = any || call.need[i];
    }
    if (!arrives || !any) return ok();
    if (!node.op->gradient)
      return recipe_error("op '" + std::string(node.op->name) + "' of node '" + node.name + "' has no gradient, and one is needed");

    // What each rule may add into: the parameter's buffer, or the gradient at hand when no other tensor still waits for it.
    call.d_inputs.assign(node.inputs.size(), 0);
    call.accumulate.assign(node.inputs.size(), 0);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!call.need[i]) continue;
      const galley_tensor t = node.inputs[i];
      galley_tensor into = 0;
      bool adds = false;
      if (const auto b = buffers_.find(t); b != buffers_.end()) {
        into = b->second;
        adds = written_[t];
      } else if (const auto p = pending_.find(t); p != pending_.end() && owners_[p->second] == 1) {
        into = p->second;
        adds = true;
      }
      for (const galley_tensor d : call.d_outputs)
        if (into && d == into) into = 0;
      for (size_t k = 0; k < i; ++k)
        if (into && call.d_inputs[k] == into) into = 0;
      call.d_inputs[i] = into;
      call.accumulate[i] = into && adds;
    }
    const std::vector<galley_tensor> offered = call.d_inputs;

    const Graph::As as(graph_, {Section::Backward, no_use, node.block, n, node.name + "."});
    TRY_STATUS(append_gradient(c_.draft, call));

    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!call.need[i]) continue;
      const galley_tensor t = node.inputs[i], got = call.d_inputs[i];
      if (const auto b = buffers_.find(t); b != buffers_.end()) {
        if (got != b->second) TRY_STATUS(join(c_.roles.copy, {got}, {b->second}, written_[t]));
        written_[t] = true;
        continue;
      }
      const auto p = pending_.find(t);
      if (p == pending_.end()) {
        set(t, got);
      } else if (got != p->second || !call.accumulate[i] || got != offered[i]) {
        std::vector<galley_tensor> sum = {0};
        TRY_STATUS(join(c_.roles.add, {p->second, got}, &sum, false));
        set(t, sum[0]);
      }
    }
    for (const galley_tensor t : node.outputs) {
      if (const auto it = pending_.find(t); t && it != pending_.end()) {
        --owners_[it->second];
        pending_.erase(it);
      }
    }
    return ok();
  }

  Status join(const galley_op* op, std::vector<galley_tensor> inputs, std::vector<galley_tensor>* outputs, bool accumulate) {
    TRY(graph_.append(op, "", std::move(inputs), {}, outputs, {accumulate}));
    return ok();
  }
  Status join(const galley_op* op, std::vector<galley_tensor> inputs, std::vector<galley_tensor> outputs, bool accumulate) {
    return join(op, std::move(inputs), &outputs, accumulate);
  }

  Compilation& c_;
  Graph& graph_;
  std::vector<bool> needs_;
  std::map<galley_tensor, galley_tensor> buffers_;  // parameter → gradient
  std::map<galley_tensor, bool> written_;           // parameter → its gradient has a first contribution
  std::map<galley_tensor, galley_tensor> pending_;  // forward tensor → its gradient so far
  std::map<galley_tensor, int> owners_;             // gradient → how many forward tensors it is pending for
};

}  // namespace

Status differentiate(Compilation& c) {
  if (!c.backward()) return ok();
  return Differentiator(c).run(c.decisions.trainable);
}

}  // namespace galley
