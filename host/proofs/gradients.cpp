#include "host/proofs/gradients.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "galley/op.h"
#include "host/exec/convert.hpp"
#include "host/passes/gradient_rule.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/attributes.hpp"

namespace galley {
namespace {

/// Central differences of five points, whose error is of the fourth order: as a share of the size of the operand. The first one is exact
/// but at an edge; shorter ones lose digits, which the tolerance knows.
constexpr double kStepShares[] = {1e-3, 1e-5, 1e-6};
/// Of what the differences say, and of the size of the outputs by the first step.
constexpr double kSlopeTolerance = 1e-6, kSlopeDigits = 1e-12;
/// Elements that are moved alone, beside the direction that moves all of them.
constexpr int kElementsAlone = 8;
constexpr double kLossSeed = 0.37;

bool is_float(const Numbers& n) { return is_floating(n.dtype); }
bool in_16_bit(const std::optional<Numbers>& n) { return n && (n->dtype == GALLEY_BF16 || n->dtype == GALLEY_F16); }
bool differentiable(const galley_operand_rule* rule, const std::optional<Numbers>& n) {
  return n && rule && is_float(*n) && !n->floats.empty() && !(rule->flags & GALLEY_OPERAND_NO_GRADIENT);
}

std::vector<double> direction(size_t n, std::mt19937_64& random) {
  std::vector<double> out(n);
  for (double& x : out) x = std::uniform_real_distribution(-1.0, 1.0)(random);
  return out;
}
double root_mean_square(const std::vector<double>& of) {
  double sum = 0;
  for (const double x : of) sum += std::isfinite(x) ? x * x : 0;
  return of.empty() ? 0 : std::sqrt(sum / static_cast<double>(of.size()));
}
std::string text_of(const char* format, double a, double b, double c) {
  char text[200];
  std::snprintf(text, sizeof text, format, a, b, c);
  return text;
}

/// The graph of a node, its outputs, and what its gradient rule appends, with the numbers of each tensor.
class Tape {
 public:
  Tape(const LoneNode& node, const OpLookup& ops)
      : node_(node), draft_(ops, [] { return std::vector<std::string>(); }, {0, node.length, 0}) {}

  Status build() {
    const Graph::As as(graph_, {Section::Forward, no_use, node_.block});
    std::vector<galley_tensor> inputs;
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      const auto& n = node_.inputs[i];
      inputs.push_back(n ? TRY(tensor("input " + std::to_string(i), *n)) : 0);
    }
    forward_ = TRY(graph_.append(node_.op, node_.name, std::move(inputs), node_.attrs, &outputs_));
    return ok();
  }
  /// Zeros in the shapes that the shape rule says.
  Values empty_outputs() const {
    Values out;
    for (const galley_tensor t : outputs_)
      out.push_back(t ? std::optional(Numbers::of(graph_.tensor(t).dtype, graph_.tensor(t).shape)) : std::nullopt);
    return out;
  }
  Result<galley_tensor> tensor(const std::string& name, Numbers numbers, uint32_t kind = GALLEY_KIND_TRANSIENT) {
    GraphTensor t;
    t.name = name;
    t.dtype = numbers.dtype;
    t.shape = numbers.shape;
    t.kind = kind;
    const galley_tensor made = TRY(graph_.make(std::move(t)));
    values_[made] = std::move(numbers);
    return made;
  }

  Draft& draft() { return draft_; }
  galley_node forward() const { return forward_; }
  const std::vector<galley_tensor>& outputs() const { return outputs_; }
  std::map<galley_tensor, Numbers>& values() { return values_; }

  /// Computes the nodes that were appended, in order.
  Status evaluate() {
    for (const galley_node n : graph_.section(Section::Backward)) {
      const GraphNode& node = graph_.node(n);
      if (!node.op->reference) return plugin_error("op '" + std::string(node.op->name) + "' of its gradient has no reference");
      std::vector<Numbers*> inputs, outputs;
      for (const galley_tensor t : node.inputs) {
        const auto found = t ? values_.find(t) : values_.end();
        if (t && found == values_.end())
          return plugin_error("'" + node.name + "' of its gradient reads '" + graph_.tensor(t).name + "', which nothing has made");
        inputs.push_back(t ? &found->second : nullptr);
      }
      std::vector<std::optional<Numbers>> made;
      for (const galley_tensor t : node.outputs)
        made.push_back(t ? std::optional(Numbers::of(graph_.tensor(t).dtype, graph_.tensor(t).shape)) : std::nullopt);
      for (auto& m : made) outputs.push_back(m ? &*m : nullptr);
      const LaunchNode as_node = {node.name, node.op, node.attrs, node_.flags, node_.first_row, node_.block};
      TRY_STATUS(call_reference(as_node, node_.length, inputs, outputs));
      for (size_t k = 0; k < made.size(); ++k) {
        if (!made[k]) continue;
        Numbers& to = values_[node.outputs[k]];
        if (!chosen(node.accumulate, k)) to = std::move(*made[k]);
        else
          for (size_t i = 0; i < to.floats.size(); ++i) to.floats[i] += made[k]->floats[i];
      }
    }
    return ok();
  }

 private:
  const LoneNode& node_;
  Draft draft_;
  Graph& graph_ = draft_.graph;
  galley_node forward_ = 0;
  std::vector<galley_tensor> outputs_;
  std::map<galley_tensor, Numbers> values_;
};

/// Runs the reference on inputs of the node that may have been moved.
Status compute(const LoneNode& node, Values& inputs, Values& outputs) {
  std::vector<Numbers*> in, out;
  for (auto& n : inputs) in.push_back(n ? &*n : nullptr);
  for (auto& n : outputs) out.push_back(n ? &*n : nullptr);
  return call_reference({node.name, node.op, node.attrs, node.flags, node.first_row, node.block}, node.length, in, out);
}

struct Slope {
  std::vector<double> along;
  double value = 0;
};

class Check {
 public:
  Check(const LoneNode& node, Depth depth, const OpLookup& ops, std::mt19937_64& random)
      : node_(node), depth_(depth), ops_(ops), random_(random) {}

  Result<GradientCheck> run() {
    GradientCheck out;
    const galley_op& op = *node_.op;
    if (!op.gradient) out.unchecked = "there is no gradient rule";
    else if (!op.reference) out.unchecked = "there is no reference";
    else if (op.flags & GALLEY_OP_ROUNDS) out.unchecked = "inputs are rounded to few values, and the gradient takes that for the identity";
    for (const galley_attr_rule* rule : attr_rules(op))
      if (rule->flags & GALLEY_ATTR_STOPS && node_.attrs.find(rule->name))
        out.unchecked = std::string("by its attribute '") + rule->name + "', the gradient leaves out a part of the derivative";
    if (!out.unchecked.empty()) return out;
    const Result<Values> outputs = outputs_of(node_, ops_);
    if (!outputs) {
      out.faults.push_back({"", 0, outputs.error().cause});
      return out;
    }
    for (const Values* operands : {&node_.inputs, &*outputs})
      for (const auto& n : *operands)
        if (in_16_bit(n)) out.unchecked = "a case in 16 bit, which no rule meets: the host differentiates in F32, and casts afterwards";
    outputs_ = *outputs;
    const bool loss = op.flags & GALLEY_OP_LOSS;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      auto& c = cotangents_.emplace_back();
      if (!differentiable(output_rule(&op, i), outputs_[i])) continue;
      c = Numbers::of(outputs_[i]->dtype, outputs_[i]->shape);
      c->floats = loss ? std::vector<double>(c->floats.size(), kLossSeed) : direction(c->floats.size(), random_);
      for (size_t e = 0; e < c->floats.size(); ++e) size_ += std::pow(c->floats[e] * outputs_[i]->floats[e], 2);
    }
    size_ = std::sqrt(size_);
    for (size_t i = 0; i < node_.inputs.size(); ++i)
      if (differentiable(input_rule(&op, i), node_.inputs[i])) inputs_.push_back(i);
    if (inputs_.empty() && out.unchecked.empty()) out.unchecked = "no input has a gradient";
    if (!out.unchecked.empty()) return out;
    slopes_.resize(node_.inputs.size());
    for (const size_t i : inputs_) {
      out.inputs.push_back(name_of(i));
      const size_t n = node_.inputs[i]->floats.size();
      slopes_[i].push_back({direction(n, random_), 0});
      for (int k = 0; depth_ == Depth::EveryChoice && k < kElementsAlone; ++k) {
        slopes_[i].push_back({std::vector<double>(n, 0.0), 0});
        slopes_[i].back().along[random_() % n] = 1;
      }
      for (Slope& s : slopes_[i]) s.value = TRY(slope(i, s.along, kStepShares[0]));
    }
    const uint32_t all = 1u << std::min<size_t>(inputs_.size(), 16);
    for (uint32_t choice = depth_ == Depth::Once ? all - 1 : 1; choice < all; ++choice)
      for (const Given given : {Given::Nothing, Given::ToWrite, Given::ToAddTo})
        if (depth_ == Depth::EveryChoice || given == Given::Nothing) TRY_STATUS(hold(choice, given, out));
    return out;
  }

 private:
  std::string name_of(size_t i) const { return input_rule(node_.op, i)->name; }
  double unit(size_t i) const {
    const double size = root_mean_square(node_.inputs[i]->floats);
    return size > 0 ? size : 1;
  }

  /// The derivative of Σ cotangent · output along a direction of an input. Outputs are subtracted before they are summed: those that do
  /// not change then add no rounding.
  Result<double> slope(size_t input, const std::vector<double>& along, double share) {
    const double h = share * unit(input);
    const double factors[] = {8, -8, -1, 1}, steps[] = {h, -h, 2 * h, -2 * h};
    std::vector<Values> at;
    for (const double step : steps) {
      Values inputs = node_.inputs, outputs = outputs_;
      std::vector<double>& x = inputs[input]->floats;
      for (size_t i = 0; i < x.size(); ++i) x[i] += step * along[i];
      TRY_STATUS(compute(node_, inputs, outputs));
      at.push_back(std::move(outputs));
    }
    double sum = 0;
    for (size_t o = 0; o < cotangents_.size(); ++o) {
      if (!cotangents_[o]) continue;
      for (size_t e = 0; e < cotangents_[o]->floats.size(); ++e) {
        double difference = 0;
        for (const size_t pair : {size_t{0}, size_t{2}})
          difference += factors[pair] * (at[pair][o]->floats[e] - at[pair + 1][o]->floats[e]);
        if (std::isfinite(difference)) sum += cotangents_[o]->floats[e] * difference;
      }
    }
    return sum / (12 * h);
  }

  Status hold(uint32_t choice, Given given, GradientCheck& out) {
    std::vector<uint8_t> need(node_.inputs.size(), 0);
    for (size_t k = 0; k < inputs_.size(); ++k) need[inputs_[k]] = static_cast<uint8_t>(choice >> std::min<size_t>(k, 15) & 1);
    const Result<Values> got = gradients_by_rule(node_, outputs_, cotangents_, kLossSeed, need, given, ops_, random_);
    if (!got) {
      if (out.faults.empty()) out.faults.push_back({"", 0, got.error().cause});
      return ok();
    }
    for (const size_t i : inputs_)
      if (need[i]) TRY_STATUS(compare(i, (*got)[i]->floats, given, out));
    return ok();
  }

  Status compare(size_t i, const std::vector<double>& got, Given given, GradientCheck& out) {
    const std::string input = "input " + std::to_string(i) + " ('" + name_of(i) + "')";
    if (std::any_of(out.faults.begin(), out.faults.end(), [&](const GradientFault& f) { return f.input == input; })) return ok();
    double size = 0;
    for (const Slope& s : slopes_[i]) size = std::max(size, std::fabs(s.value));
    for (const Slope& s : slopes_[i]) {
      double by_rule = 0, measured = s.value;
      for (size_t e = 0; e < got.size(); ++e) by_rule += s.along[e] == 0 ? 0 : got[e] * s.along[e];
      const auto agrees = [&](double share) {
        const double digits = kSlopeDigits * size_ / (share * unit(i)) + 1e-12;
        const double room = kSlopeTolerance * (std::fabs(measured) + size / std::sqrt(static_cast<double>(got.size()))) + digits;
        return std::fabs(by_rule - measured) <= room;
      };
      bool fine = agrees(kStepShares[0]);
      for (size_t k = 1; k < std::size(kStepShares) && !fine; ++k) {
        measured = TRY(slope(i, s.along, kStepShares[k]));
        fine = agrees(kStepShares[k]);
      }
      if (fine) continue;
      const double off = std::fabs(by_rule - measured), of = std::max(std::fabs(measured), std::fabs(by_rule));
      const double share = std::fabs(measured) > 1e-9 * of ? off / std::fabs(measured) : HUGE_VAL;
      const char* const how = given == Given::ToAddTo   ? ", where it is to add to another gradient"
                              : given == Given::ToWrite ? ", written to a given tensor"
                                                        : "";
      const char* const text =
          std::isfinite(share)
              ? "the gradient rule says %.6g along a direction, finite differences of the reference say %.6g: off by %.2g of it"
              : "the gradient rule says %.6g along a direction, finite differences of the reference say %.6g";
      out.faults.push_back(
          {input, std::isfinite(share) ? share : HUGE_VAL, text_of(text, by_rule, measured, share) + how + forward_tensor(got)});
      break;
    }
    return ok();
  }

  /// Where the rule's gradient is a tensor of the forward node: which.
  std::string forward_tensor(const std::vector<double>& got) const {
    for (size_t i = 0; i < node_.inputs.size(); ++i)
      if (node_.inputs[i] && is_float(*node_.inputs[i]) && node_.inputs[i]->floats == got)
        return "; it hands out the numbers of input '" + name_of(i) + "'";
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (outputs_[i] && is_float(*outputs_[i]) && outputs_[i]->floats == got)
        return std::string("; it hands out the numbers of output '") + output_rule(node_.op, i)->name + "'";
    return {};
  }

  const LoneNode& node_;
  const Depth depth_;
  const OpLookup& ops_;
  std::mt19937_64& random_;
  Values outputs_, cotangents_;
  double size_ = 0;  ///< of what the slopes are differences of
  std::vector<size_t> inputs_;
  std::vector<std::vector<Slope>> slopes_;
};

}  // namespace

Result<LoneNode> LoneNode::of(const galley_op* op, const galley_op_case& example, std::mt19937_64& random) {
  LoneNode out;
  const auto node = read_struct(*example.node);
  out.op = op;
  out.name = node.name;
  TRY_STATUS(out.attrs.add(node.attrs, node.n_attrs));
  out.flags = node.flags;
  out.first_row = node.first_row;
  out.length = node.length;
  out.block = node.block;
  for (uint32_t i = 0; i < node.n_inputs; ++i) {
    auto& in = out.inputs.emplace_back();
    if (!node.inputs[i]) continue;
    const auto operand = read_struct(*node.inputs[i]);
    in = Numbers::of(operand.dtype, Shape(operand.shape, operand.shape + operand.rank));
    in->draw(example.low[i], example.high[i], random);
  }
  return out;
}

Result<Made> made_by(const LoneNode& node, const OpLookup& ops) {
  Tape tape(node, ops);
  TRY_STATUS(tape.build());
  Made out = {node.inputs, tape.empty_outputs()};
  TRY_STATUS(compute(node, out.inputs, out.outputs));
  return out;
}

Result<Values> outputs_of(const LoneNode& node, const OpLookup& ops) { return TRY(made_by(node, ops)).outputs; }

Result<Values> gradients_by_rule(const LoneNode& node, const Values& outputs, const Values& cotangents, double seed,
                                 const std::vector<uint8_t>& need, Given given, const OpLookup& ops, std::mt19937_64& random) {
  Tape tape(node, ops);
  TRY_STATUS(tape.build());
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i]) tape.values()[tape.outputs()[i]] = *outputs[i];
  const galley_tensor loss_seed = TRY(tape.draft().scalars.get(GALLEY_SCALAR_LOSS_SEED));
  Numbers of_seed = Numbers::of(GALLEY_F32, {1});
  of_seed.floats[0] = seed;
  tape.values()[loss_seed] = of_seed;
  GradientCall call;
  call.node = tape.forward();
  call.d_outputs.assign(outputs.size(), 0);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!(node.op->flags & GALLEY_OP_LOSS) && i < cotangents.size() && cotangents[i])
      call.d_outputs[i] = TRY(tape.tensor("gradient of output " + std::to_string(i), *cotangents[i]));
  call.need = need;
  call.d_inputs.assign(node.inputs.size(), 0);
  call.accumulate.assign(node.inputs.size(), 0);
  Values before(node.inputs.size());
  for (size_t i = 0; i < need.size(); ++i) {
    if (!need[i] || given == Given::Nothing) continue;
    Numbers n = *node.inputs[i];
    n.floats = given == Given::ToAddTo ? direction(n.floats.size(), random) : std::vector<double>(n.floats.size(), NAN);
    if (given == Given::ToAddTo) before[i] = n;
    call.accumulate[i] = given == Given::ToAddTo;
    call.d_inputs[i] = TRY(tape.tensor("gradient of input " + std::to_string(i), std::move(n), GALLEY_KIND_GRADIENT));
  }
  const std::vector<galley_tensor> offered = call.d_inputs;
  const Graph::As as(tape.draft().graph, {Section::Backward, no_use, node.block, tape.forward(), node.name + "."});
  TRY_STATUS(append_gradient(tape.draft(), call));
  TRY_STATUS(tape.evaluate());
  Values out(node.inputs.size());
  for (size_t i = 0; i < need.size(); ++i) {
    if (!need[i]) {
      if (call.d_inputs[i])
        return plugin_error("the gradient rule hands out a gradient of input " + std::to_string(i) + ", which needs none");
      continue;
    }
    const auto found = tape.values().find(call.d_inputs[i]);
    if (found == tape.values().end())
      return plugin_error("the gradient of input " + std::to_string(i) + " is a tensor that nothing has made");
    out[i] = found->second;
    if (before[i] && call.d_inputs[i] == offered[i])
      for (size_t e = 0; e < out[i]->floats.size(); ++e) out[i]->floats[e] -= before[i]->floats[e];
  }
  return out;
}

Result<GradientCheck> check_gradient(const LoneNode& node, Depth depth, const OpLookup& ops, std::mt19937_64& random) {
  return Check(node, depth, ops, random).run();
}

}  // namespace galley
