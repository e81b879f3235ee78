// The backward graph.
//
// Reverse accumulation over the forward section. Each tensor that needs a gradient has at most one that is pending; contributions are
// joined by letting the next rule add into the tensor at hand, where nobody else still waits for it, and by an add node where not.
//
// Where processes compute the same micro-batches, and a node that works on parts reads a tensor that is the same on all of them, each process
// has a contribution of its own to that tensor's gradient: these are joined by themselves, and added up along the axis once (the operators f
// and g of Shoeybi et al., "Megatron-LM", 2019, arXiv:1909.08053, wherever they are needed).
#include <map>

#include "galley/op.h"
#include "host/passes/differing.hpp"
#include "host/passes/gradient_rule.hpp"
#include "host/passes/passes.hpp"

namespace galley {
namespace {

class Differentiator {
 public:
  explicit Differentiator(Compilation& c) : c_(c), graph_(c.graph), differing_(c) {}

  Status run(const std::vector<galley_tensor>& trainable) {
    for (const galley_tensor t : trainable) buffers_[t] = TRY(buffer(t));
    mark_needs(trainable);
    TRY_STATUS(find_differing());
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

  using Pending = std::map<galley_tensor, galley_tensor>;

  void set(Pending& among, galley_tensor of, galley_tensor gradient) {
    if (const auto it = among.find(of); it != among.end()) --owners_[it->second];
    among[of] = gradient;
    ++owners_[gradient];
  }
  void forget(Pending& among, galley_tensor of) {
    const auto it = among.find(of);
    if (it == among.end()) return;
    --owners_[it->second];
    among.erase(it);
  }

  /// What has to be the same on all processes that compute together is.
  Status find_differing() {
    for (const galley_node n : graph_.section(Section::Forward)) {
      const GraphNode& node = graph_.node(n);
      if (node.op->flags & GALLEY_OP_LOSS && differing_.reads(node))
        return recipe_error("the loss '" + node.name + "' is made from parts of processes along the axis '" + c_.options.lanes.axis + "'",
                            "an exchange along the axis has to make it the same on all: \"all_reduce\"");
      differing_.add(node);
    }
    return ok();
  }

  /// Returns the gradient of a tensor of which all contributions are there; 0: it has none.
  Result<galley_tensor> gradient_of(galley_tensor t) {
    if (const auto partial = partial_.find(t); partial != partial_.end()) {
      std::vector<galley_tensor> sum = {0};
      TRY_STATUS(add_up(partial->second, &sum, false));
      forget(partial_, t);
      if (const auto it = pending_.find(t); it != pending_.end()) {
        std::vector<galley_tensor> both = {0};
        TRY_STATUS(join(c_.roles.add, {it->second, sum[0]}, &both, false));
        sum = both;
      }
      set(pending_, t, sum[0]);
    }
    const auto it = pending_.find(t);
    return it == pending_.end() ? 0 : it->second;
  }
  /// Adds what each process along the axis has up.
  Status add_up(galley_tensor from, std::vector<galley_tensor>* to, bool accumulate) {
    AttrList attrs;
    attrs.set("axis", c_.options.lanes.axis);
    attrs.set("ranks", c_.options.lanes.together);
    TRY(graph_.append(c_.roles.all_reduce, "", {from}, std::move(attrs), to, {accumulate}));
    return ok();
  }

  Status step(galley_node n) {
    const GraphNode& node = graph_.node(n);
    GradientCall call;
    call.node = n;
    call.d_outputs.assign(node.outputs.size(), 0);
    const Graph::As as(graph_, {Section::Backward, no_use, node.block, n, node.name + "."});
    bool arrives = node.op->flags & GALLEY_OP_LOSS;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i]) call.d_outputs[i] = TRY(gradient_of(node.outputs[i]));
      arrives = arrives || call.d_outputs[i];
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
    const bool parts = differing_.works_on_parts(node);
    const auto pending_of = [&](galley_tensor t) -> Pending& { return parts && !differing_(t) ? partial_ : pending_; };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!call.need[i]) continue;
      const galley_tensor t = node.inputs[i];
      const Pending& among = pending_of(t);
      galley_tensor into = 0;
      bool adds = false;
      if (const auto b = buffers_.find(t); b != buffers_.end()) {
        if (&among == &partial_) continue;
        into = b->second;
        adds = written_[t];
      } else if (const auto p = among.find(t); p != among.end() && owners_[p->second] == 1) {
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

    TRY_STATUS(append_gradient(c_.draft, call));

    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!call.need[i]) continue;
      const galley_tensor t = node.inputs[i], got = call.d_inputs[i];
      Pending& among = pending_of(t);
      if (const auto b = buffers_.find(t); b != buffers_.end()) {
        std::vector<galley_tensor> buffer = {b->second};
        if (&among == &partial_) {
          TRY_STATUS(check_knows(graph_.tensor(t), node));
          TRY_STATUS(add_up(got, &buffer, written_[t]));
        } else if (got != b->second) {
          TRY_STATUS(join(c_.roles.copy, {got}, &buffer, written_[t]));
        }
        written_[t] = true;
        continue;
      }
      const auto p = among.find(t);
      if (p == among.end()) {
        set(among, t, got);
      } else if (got != p->second || !call.accumulate[i] || got != offered[i]) {
        std::vector<galley_tensor> sum = {0};
        TRY_STATUS(join(c_.roles.add, {p->second, got}, &sum, false));
        set(among, t, sum[0]);
      }
    }
    for (const galley_tensor t : node.outputs)
      if (t) forget(pending_, t);
    return ok();
  }

  /// A parameter that a strategy has added is of the shape of what it was added to. Beside a part, it would be a part as well: who does not
  /// know of parts makes one parameter for all processes, which none of their parts was meant to have.
  Status check_knows(const GraphTensor& parameter, const GraphNode& node) const {
    if (parameter.use == no_use) return ok();
    return recipe_error(label(c_.strategies, parameter.use) + ": '" + parameter.name + "' is trained in '" + node.name +
                            "', of which each process along the axis '" + c_.options.lanes.axis + "' computes a part",
                        "leave what is divided out of the strategy's targets, or the strategy that divides it");
  }

  Status join(const galley_op* op, std::vector<galley_tensor> inputs, std::vector<galley_tensor>* outputs, bool accumulate) {
    TRY(graph_.append(op, "", std::move(inputs), {}, outputs, {accumulate}));
    return ok();
  }

  Compilation& c_;
  Graph& graph_;
  std::vector<bool> needs_;
  std::map<galley_tensor, galley_tensor> buffers_;  // parameter → gradient
  std::map<galley_tensor, bool> written_;           // parameter → its gradient has a first contribution
  Pending pending_;                                 // forward tensor → its gradient so far
  Pending partial_;                                 // forward tensor → what this process adds to it, which is not added up yet
  std::map<galley_tensor, int> owners_;             // gradient → how many forward tensors it is pending for
  Differing differing_;                             // in forward
};

}  // namespace

Status differentiate(Compilation& c) {
  if (!c.backward()) return ok();
  return Differentiator(c).run(c.decisions.trainable);
}

}  // namespace galley
