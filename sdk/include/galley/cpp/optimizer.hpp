// What optimizers repeat: the op that steps one parameter element by element, and the node that a strategy makes of it. The arithmetic is a
// rule (rule.hpp), of which steps.hpp and galley/cuda/steps.hpp make kernels.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "galley/cpp/patterns.hpp"
#include "galley/cpp/rule.hpp"
#include "galley/cpp/strategy.hpp"

namespace galley::sdk {

/// One element in an op's definition, in double precision.
struct StepElement {
  double lr;
  double step;      ///< the applied step, from 1
  double gradient;  ///< multiplied by the gradient factor
  double& parameter;
  std::array<double*, kMostStates> states;  ///< NULL: absent

  bool has(size_t k) const { return states[k] != nullptr; }
  double& state(size_t k) const { return *states[k]; }
};

/// The definition of a step: body(const StepElement&) for each element, unless the step is skipped.
template <class Body>
void reference_steps(const Node& node, const Body& body) {
  if (!*node.read<int32_t>(kStepApply)) return;
  const double lr = node.has(kStepRate) ? *node.read<double>(kStepRate) : 0;
  const double factor = node.has(kStepFactor) ? *node.read<double>(kStepFactor) : 1;
  const auto step = static_cast<double>(*node.read<int64_t>(kStepNumber));
  const double* gradient = node.read<double>(kStepGradient);
  double* p = node.update<double>(kStepParameter);
  std::array<double*, kMostStates> begin = {};
  for (uint32_t k = 0; k < kMostStates; ++k)
    if (node.has(kStepStates + k)) begin[k] = node.update<double>(kStepStates + k);
  for (int64_t i = 0; i < count(node.in(kStepParameter)); ++i) {
    std::array<double*, kMostStates> states = begin;
    for (double*& state : states)
      if (state) state += i;
    body(StepElement{lr, step, factor * gradient[i], p[i], states});
  }
}

/// A test case of a step.
struct StepCase {
  std::vector<int64_t> shape;
  double step = 1;
  bool apply = true;
  uint32_t gradient = GALLEY_F32;
  size_t states = kMostStates;  ///< how many of them are there
  bool factor = true, rate = true;
};

/// An op that steps one parameter: StepOp op("signum_step", "…"); op.state("momentum_buffer"); op.number(…).reference<…>();
class StepOp : public Op {
 public:
  /// `parameter`, `gradient`: what these inputs are called.
  StepOp(const char* name, const char* summary, const char* parameter = "parameter", const char* gradient = "gradient")
      : Op(name, summary) {
    constexpr uint64_t fixed = GALLEY_OPERAND_NO_GRADIENT;
    input(parameter, GALLEY_ROLE_ROWS, kInPlace)
        .input(gradient, GALLEY_ROLE_ROWS, fixed | GALLEY_OPERAND_ANY_DTYPE)
        .input("lr", GALLEY_ROLE_WHOLE, fixed | GALLEY_OPERAND_OPTIONAL)
        .input("applied_step", GALLEY_ROLE_WHOLE, fixed)
        .input("gradient_factor", GALLEY_ROLE_WHOLE, fixed | GALLEY_OPERAND_OPTIONAL)
        .input("apply", GALLEY_ROLE_WHOLE, fixed)
        .grain(GALLEY_GRAIN_ELEMENT);
    Op::infer<infer_step>();
  }
  /// A state of the parameter's shape. Test cases draw its numbers from [low, high]. `flags`: GALLEY_OPERAND_OPTIONAL or 0.
  StepOp& state(const char* name, double low = -1, double high = 1, uint64_t flags = 0) {
    input(name, GALLEY_ROLE_ROWS, kInPlace | flags);
    states_.emplace_back(low, high);
    return *this;
  }
  /// After the states.
  StepOp& test(const char* name, const StepCase& c, Attrs attrs = {}) {
    const double apply = c.apply;
    std::vector<CaseInput> inputs = {{GALLEY_F32, c.shape},
                                     {c.gradient, c.shape},
                                     {c.rate ? GALLEY_F32 : 0u, {1}, 0.001, 0.1},
                                     {GALLEY_I64, {1}, c.step, c.step},
                                     {c.factor ? GALLEY_F32 : 0u, {1}, 0.5, 1},
                                     {GALLEY_I32, {1}, apply, apply}};
    for (size_t k = 0; k < states_.size(); ++k)
      inputs.push_back({k < c.states ? GALLEY_F32 : 0u, c.shape, states_[k].first, states_[k].second});
    Op::test(name, std::move(inputs), std::move(attrs));
    return *this;
  }

 private:
  static constexpr uint64_t kInPlace = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT;

  static void infer_step(const Node& node, Shapes&) {
    const std::string name = node.name();
    const uint32_t gradient = node.in(kStepGradient).dtype;
    if (gradient != GALLEY_F32 && !detail::is_16_bit(gradient)) invalid(name + ": the gradient has to be F32, BF16 or F16");
    if (node.in(kStepNumber).dtype != GALLEY_I64 || node.in(kStepApply).dtype != GALLEY_I32)
      invalid(name + ": the step has to be I64, and apply I32");
    for (uint32_t i = 0; i < node.view()->n_inputs; ++i) {
      if (!node.has(i) || i == kStepNumber || i == kStepApply) continue;
      if (i != kStepGradient && node.in(i).dtype != GALLEY_F32) invalid(name + ": input " + std::to_string(i) + " has to be F32");
      if (i != kStepRate && i != kStepFactor && count(node.in(i)) != count(node.in(kStepParameter)))
        invalid(name + ": the parameter is " + shape_text(node.in(kStepParameter)) + ", but input " + std::to_string(i) + " is " +
                shape_text(node.in(i)));
    }
  }

  std::vector<std::pair<double, double>> states_;
};

/// Which parameters an optimizer updates, and what holds for them, by the options that optimizers have in common:
///   parameters           patterns: claims these strongly; without it, all that are trained weakly
///   weight_decay         of those that decay; decay_on = "all": every one, else all but norms and biases
///   groups               tables of `match` (patterns), `lr_factor` and `weight_decay`; of several that match, the first holds
/// The manifest has those that the optimizer wants.
class Updated {
 public:
  /// `name`: what `galley plan` calls the optimizer.
  Updated(const Options& options, std::string name)
      : name_(std::move(name)),
        parameters_(options.strings("parameters")),
        decay_(options.number("weight_decay", 0)),
        decay_all_(options.string("decay_on", "weights") == "all") {
    for (const Options& group : options.tables("groups")) {
      Group g = {Patterns(group.strings("match")), {}, group.number("lr_factor"), group.number("weight_decay", -1)};
      g.text = name_ + ", " + g.patterns.text();
      groups_.push_back(std::move(g));
    }
  }
  /// Claims updates, and nothing else.
  void claim(const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_UPDATE)) return;
    for (const Claim& parameter : claims) claim(parameter);
  }
  /// Claims the update of one parameter, if it is trained. The text says which group it belongs to. `strongly`: also without `parameters`.
  void claim(const Claim& parameter, bool strongly = false) const {
    if (!parameter.trainable) return;
    const Group* group = group_of(parameter.name);
    const char* const text = group ? group->text.c_str() : name_.c_str();
    if (parameters_.empty() && !strongly) parameter.weak(0, text);
    else if (parameters_.empty() || parameters_.match(parameter.name)) parameter.strong(0, text);
  }
  bool names(const char* parameter) const { return parameters_.empty() || parameters_.match(parameter); }
  double decay(const galley_tensor_info& parameter) const {
    const Group* group = group_of(parameter.name);
    if (group && group->decay >= 0) return group->decay;
    return decay_all_ || !(parameter.flags & GALLEY_TENSOR_NO_DECAY) ? decay_ : 0;
  }
  /// By which the parameter's learning rate is multiplied.
  double lr_factor(const galley_tensor_info& parameter) const {
    const Group* group = group_of(parameter.name);
    return group ? group->lr_factor : 1;
  }

 private:
  struct Group {
    Patterns patterns;
    std::string text;
    double lr_factor, decay;  // a negative decay: the optimizer's own
  };
  const Group* group_of(const char* name) const {
    const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.patterns.match(name); });
    return found == groups_.end() ? nullptr : &*found;
  }

  std::string name_;
  Patterns parameters_;
  double decay_;
  bool decay_all_;
  std::vector<Group> groups_;
};

/// The node that steps one parameter: StepNode(graph, trained, updated).state("exp_avg").add("signum_step", Attrs()…).
class StepNode {
 public:
  /// `rate`: the option that is the learning rate.
  StepNode(UpdateGraph& graph, const Trained& trained, const Updated& updated, const char* rate = "lr")
      : StepNode(graph, trained, scaled(graph, trained, updated), rate) {}
  /// Of an optimizer without these options.
  StepNode(UpdateGraph& graph, const Trained& trained) : StepNode(graph, trained, graph.info(trained.parameter), "lr") {}

  /// The next state: zeros of the parameter's shape, "<parameter>.<name>". `flags`: GALLEY_TENSOR_….
  StepNode& state(const char* name, uint64_t flags = 0) {
    inputs_.push_back(graph_.state(std::string(parameter_.name) + "." + name, parameter_, flags));
    return *this;
  }
  StepNode& state_if(bool there, const char* name, uint64_t flags = 0) {
    if (there) return state(name, flags);
    inputs_.push_back(0);
    return *this;
  }
  void add(const char* op, const Attrs& attrs) { graph_.node(op, nullptr, inputs_, attrs, {}); }

 private:
  StepNode(UpdateGraph& graph, const Trained& trained, const galley_tensor_info& parameter, const char* rate)
      : graph_(graph), parameter_(parameter) {
    inputs_ = {trained.parameter,
               trained.gradient,
               graph.rate(rate, trained.parameter),
               graph.scalar(GALLEY_SCALAR_APPLIED_STEP),
               graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR),
               graph.scalar(GALLEY_SCALAR_APPLY)};
  }
  static galley_tensor_info scaled(UpdateGraph& graph, const Trained& trained, const Updated& updated) {
    const galley_tensor_info parameter = graph.info(trained.parameter);
    if (const double factor = updated.lr_factor(parameter); factor != 1) graph.scale_rate(trained.parameter, factor);
    return parameter;
  }

  UpdateGraph& graph_;
  galley_tensor_info parameter_;
  std::vector<galley_tensor> inputs_;
};

}  // namespace galley::sdk
