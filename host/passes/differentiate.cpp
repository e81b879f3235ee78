// The backward graph and the update graph.
//
// Reverse accumulation over the forward section. Each tensor that needs a gradient has at most one that is pending; contributions are joined by letting the
// next rule add into the tensor at hand, where nobody else still waits for it, and by an add node where not.
#include <map>

#include "galley/op.h"
#include "galley/update.h"
#include "host/passes/compile.hpp"

namespace galley {
namespace {

class Differentiator {
 public:
  explicit Differentiator(Graph& graph) : graph_(graph) {}

  Status run(const std::vector<galley_tensor>& trainable) {
    for (const galley_tensor t : trainable) buffers_[t] = TRY(buffer(t));
    mark_needs(trainable);
    graph_.current = Section::Backward;
    const std::vector<galley_node> forward = graph_.section(Section::Forward);
    for (auto it = forward.rbegin(); it != forward.rend(); ++it) TRY_STATUS(step(*it));
    graph_.origin = 0;
    graph_.block = -1;
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
    return graph_.make(std::move(g));
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
    std::vector<galley_tensor> d_outputs(node.outputs.size(), 0);
    bool arrives = node.op->flags & GALLEY_OP_LOSS;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (const auto it = pending_.find(node.outputs[i]); node.outputs[i] && it != pending_.end()) {
        d_outputs[i] = it->second;
        arrives = true;
      }
    }
    std::vector<uint32_t> need(node.inputs.size(), 0);
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      need[i] = input_needs(node, i);
      any = any || need[i];
    }
    if (!arrives || !any) return ok();
    if (!node.op->gradient)
      return recipe_error("op '" + std::string(node.op->name) + "' of node '" + node.name + "' has no gradient, and one is needed");

    // What each rule may add into: the parameter's buffer, or the gradient at hand when no other tensor still waits for it.
    std::vector<galley_tensor> d_inputs(node.inputs.size(), 0);
    uint32_t accumulate = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!need[i]) continue;
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
      for (const galley_tensor d : d_outputs)
        if (into && d == into) into = 0;
      for (size_t k = 0; k < i; ++k)
        if (into && d_inputs[k] == into) into = 0;
      d_inputs[i] = into;
      if (into && adds) accumulate |= 1u << i;
    }
    const std::vector<galley_tensor> offered = d_inputs;

    graph_.origin = n;
    graph_.block = node.block;
    graph_.prefix = node.name + ".";
    galley_error error = GALLEY_ERROR_INIT;
    if (node.op->gradient(Graph::verbs(), graph_.handle(), n, d_outputs.data(), need.data(), d_inputs.data(), accumulate, &error) !=
        GALLEY_OK)
      return plugin_error("gradient of '" + node.name + "' (" + node.op->name + "): " + error.text);

    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!need[i]) continue;
      const galley_tensor t = node.inputs[i], got = d_inputs[i];
      if (!got) return plugin_error("gradient of '" + node.name + "' (" + node.op->name + "): nothing for input " + std::to_string(i));
      if (const auto b = buffers_.find(t); b != buffers_.end()) {
        if (got != b->second) TRY_STATUS(join(GALLEY_OP_COPY, {got}, {b->second}, written_[t]));
        written_[t] = true;
        continue;
      }
      const auto p = pending_.find(t);
      if (p == pending_.end()) {
        set(t, got);
      } else if (got != p->second || !(accumulate >> i & 1) || got != offered[i]) {
        std::vector<galley_tensor> sum = {0};
        TRY_STATUS(join(GALLEY_OP_ADD, {p->second, got}, &sum, false));
        set(t, sum[0]);
      }
    }
    for (const galley_tensor t : node.outputs) {
      if (const auto it = pending_.find(t); t && it != pending_.end()) {
        --owners_[it->second];
        pending_.erase(it);
      }
    }
    graph_.prefix.clear();
    return ok();
  }

  Status join(uint64_t flag, std::vector<galley_tensor> inputs, std::vector<galley_tensor>* outputs, bool accumulate) {
    const galley_op* op = graph_.op_with(flag);
    if (!op) return plugin_error("no plugin provides an op that joins gradients");
    TRY(graph_.append(op->name, "", std::move(inputs), {}, outputs, accumulate ? 1u : 0u));
    return ok();
  }
  Status join(uint64_t flag, std::vector<galley_tensor> inputs, std::vector<galley_tensor> outputs, bool accumulate) {
    return join(flag, std::move(inputs), &outputs, accumulate);
  }

  Graph& graph_;
  std::vector<bool> needs_;
  std::map<galley_tensor, galley_tensor> buffers_;  // parameter → gradient
  std::map<galley_tensor, bool> written_;           // parameter → its gradient has a first contribution
  std::map<galley_tensor, galley_tensor> pending_;  // forward tensor → its gradient so far
  std::map<galley_tensor, int> owners_;             // gradient → how many forward tensors it is pending for
};

}  // namespace

Status differentiate(Graph& graph, const std::vector<galley_tensor>& trainable) { return Differentiator(graph).run(trainable); }

Status build_update(Graph& graph, std::span<const Strategy> strategies, const std::vector<galley_tensor>& trainable, galley_tensor* sums) {
  graph.current = Section::Update;
  graph.prefix = "update.";
  const galley_op* square = graph.op_with(GALLEY_OP_SUM_SQUARES);
  const galley_op* finish = graph.op_with(GALLEY_OP_NORM_FINISH);
  if (!square || !finish) return plugin_error("no plugin provides the ops that measure gradients");

  GraphTensor all;
  all.name = "sums of squares";
  all.dtype = GALLEY_F64;
  all.shape = {static_cast<int64_t>(trainable.size())};
  all.kind = GALLEY_KIND_SCALAR;
  *sums = TRY(graph.make(std::move(all)));
  std::vector<galley_tensor> norm_inputs = {TRY(graph.scalar(GALLEY_SCALAR_LOSS_SCALE))};
  for (size_t i = 0; i < trainable.size(); ++i) {
    GraphTensor one;
    one.name = "sum of squares of grad." + graph.tensor(trainable[i]).name;
    one.dtype = GALLEY_F64;
    one.shape = {1};
    one.kind = GALLEY_KIND_SCALAR;
    one.slice_of = *sums;
    one.slice_offset = static_cast<int64_t>(i) * 8;
    std::vector<galley_tensor> out = {TRY(graph.make(std::move(one)))};
    TRY(graph.append(square->name, "", {graph.find("grad." + graph.tensor(trainable[i]).name)}, {}, &out, 0));
    norm_inputs.push_back(out[0]);
  }
  std::vector<galley_tensor> results = {TRY(graph.scalar(GALLEY_SCALAR_GRADIENT_NORM)), TRY(graph.scalar(GALLEY_SCALAR_FOUND_INF))};
  TRY(graph.append(finish->name, "", norm_inputs, {}, &results, 0));

  const auto build = [&](size_t i, galley_tensor parameter, galley_tensor gradient) {
    graph.prefix = "update." + (parameter ? graph.tensor(parameter).name + "." : std::string());
    const galley_tensor first = graph.tensor_count() + 1;
    Status status = call_strategy(graph, strategies, i, "building the update", [&](galley_error* error) {
      return strategies[i].update->build(strategies[i].instance, Graph::verbs(), graph.handle(), parameter, gradient, error);
    });
    for (galley_tensor t = first; t <= graph.tensor_count(); ++t)
      if (graph.tensor(t).kind == GALLEY_KIND_STATE && !graph.tensor(t).parameter) graph.tensor(t).parameter = parameter;
    return status;
  };
  for (const uint32_t stage : {GALLEY_STAGE_CHECK, GALLEY_STAGE_CLIP, GALLEY_STAGE_GRADIENT, GALLEY_STAGE_STEP, GALLEY_STAGE_AFTER}) {
    const bool per_parameter = stage >= GALLEY_STAGE_GRADIENT;
    for (const galley_tensor t : per_parameter ? trainable : std::vector<galley_tensor>{0}) {
      for (size_t i = 0; i < strategies.size(); ++i) {
        if (!strategies[i].update || strategies[i].update->stage != stage) continue;
        if (stage == GALLEY_STAGE_STEP && graph.tensor(t).update_use != static_cast<int>(i)) continue;
        TRY_STATUS(build(i, t, t ? graph.find("grad." + graph.tensor(t).name) : 0));
      }
    }
  }
  graph.prefix.clear();
  return ok();
}

}  // namespace galley
