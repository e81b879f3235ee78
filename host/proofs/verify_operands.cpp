#include "host/proofs/verify_operands.hpp"

#include <set>
#include <utility>

#include "galley/op.h"
#include "host/plan/dtype.hpp"

namespace galley {
namespace {

/// An operand as plugins see it while a run is planned.
struct Views {
  explicit Views(const Program& program) : tensors(program.tensors) {}

  std::vector<const galley_operand*> of(std::span<const Operand> list) {
    std::vector<const galley_operand*> out;
    for (const Operand& o : list) {
      if (!o.given()) {
        out.push_back(nullptr);
        continue;
      }
      operands.push_back(operand_view(o, o.present() ? tensors[static_cast<size_t>(o.tensor)].name.c_str() : "", nullptr, o.access));
      operands.back().n_components = 0;  // numbers, as the rule sees them
      operands.back().format = nullptr;
      out.push_back(&operands.back());
    }
    return out;
  }

  const std::vector<ProgramTensor>& tensors;
  std::deque<galley_operand> operands;
};

class OperandVerifier {
 public:
  OperandVerifier(const Compilation& c, std::string_view pass) : c_(c), pass_(pass) {}

  Status run() {
    for (size_t s = 0; s < segment_count; ++s)
      for (const Instruction& i : c_.program.segments[s].code) {
        if (!i.launch()) continue;
        segment_ = static_cast<SegmentKind>(s);
        instruction_ = &i;
        for (const LaunchNode& node : i.launch()->nodes)
          if (node.op) TRY_STATUS(check(node));
      }
    return ok();
  }

 private:
  Error wrong(const LaunchNode& node, const std::string& text) const {
    std::string who = "node '" + node.name + "' (op '" + node.op->name + "' of plugin '" + owner_of(node.op) + "'";
    const std::string& strategy = instruction_->strategy;
    if (!strategy.empty()) who += ", made by " + strategy;
    const std::string cause =
        "after pass '" + std::string(pass_) + "': " + segment_names[static_cast<size_t>(segment_)] + ", " + who + ") " + text;
    if (owner_of(node.op) != standard_plugin) return plugin_error(cause, "report it to the plugin's author");
    return run_error(cause, "this is a bug in Galley, not in the recipe: please report it with the recipe");
  }

  std::string described(const galley_operand_rule* rule, const Operand& o) const {
    const std::string name = o.present() ? " ('" + c_.program.tensors[static_cast<size_t>(o.tensor)].name + "')" : "";
    return std::string("'") + (rule ? rule->name : "?") + "'" + name + " is " + dtype_text(o.dtype) + shape_text(o.shape);
  }

  Status check(const LaunchNode& node) {
    const galley_op& op = *node.op;
    const Operand* computes = nullptr;
    const galley_operand_rule* its = nullptr;
    for (size_t k = 0; k < node.inputs.count; ++k) {
      const Operand& o = instruction_->inputs_of(node)[k];
      const galley_operand_rule* rule = input_rule(&op, k);
      if (!rule || !o.given()) continue;
      if ((o.access & GALLEY_WRITE) && !(rule->flags & GALLEY_OPERAND_INOUT))
        return wrong(node, "updates its input " + described(rule, o) + ", which its op only reads");
      if (!is_floating(o.dtype) || !(rule->flags & GALLEY_OPERAND_COMPUTE)) continue;
      if (computes && computes->dtype != o.dtype)
        return wrong(
            node, "reads operands in two dtypes that it has to read in one: " + described(its, *computes) + ", but " + described(rule, o));
      computes = &o;
      its = rule;
    }
    return infer(node);
  }

  /// The rule is asked once about nodes that are alike.
  Status infer(const LaunchNode& node) {
    const galley_op& op = *node.op;
    if (!op.infer) return ok();
    Views views(c_.program);
    const std::vector<const galley_operand*> inputs = views.of(instruction_->inputs_of(node));
    const std::vector<const galley_operand*> outputs = views.of(instruction_->outputs_of(node));
    std::string key = node.attrs.key();
    for (const auto* list : {&inputs, &outputs})
      for (const galley_operand* o : *list) {
        key += "|";
        for (uint32_t axis = 0; o && axis <= o->rank; ++axis) key += std::to_string(axis ? o->shape[axis - 1] : o->dtype) + ",";
      }
    if (!asked_.emplace(node.op, std::move(key)).second) return ok();
    const auto attrs = node.attrs.view();
    const galley_node_view view = node_view(node, c_.program.length, inputs, outputs, attrs);
    // An initializer fills the tensor that is there: without an attribute "shape", its rule has nothing to go by.
    const bool fills = inputs.empty() && !node.attrs.find("shape");
    const Result<std::vector<galley_shape>> shapes = infer_shapes(&op, &view);
    if (!shapes) return fills ? ok() : Status(wrong(node, "has operands that its op does not take: " + shapes.error().cause));
    for (size_t k = 0; k < outputs.size(); ++k) {
      const Operand& o = instruction_->outputs_of(node)[k];
      const galley_shape& s = (*shapes)[k];
      if (!outputs[k] || !s.dtype) continue;  // a rule without a result has been found before
      if (s.dtype != o.dtype || elements(Shape(s.extents, s.extents + s.rank)) != elements(o.shape))
        return wrong(node, "writes " + dtype_text(s.dtype) + shape_text(Shape(s.extents, s.extents + s.rank)) + ", but its output " +
                               described(output_rule(&op, k), o));
    }
    return ok();
  }

  const Compilation& c_;
  std::string_view pass_;
  SegmentKind segment_ = SegmentKind::Load;
  const Instruction* instruction_ = nullptr;
  std::set<std::pair<const galley_op*, std::string>> asked_;
};

}  // namespace

Status verify_operands(const Compilation& c, std::string_view pass) { return OperandVerifier(c, pass).run(); }

}  // namespace galley
