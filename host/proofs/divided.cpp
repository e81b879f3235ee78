#include "host/proofs/divided.hpp"

#include <algorithm>

#include "galley/op.h"
#include "host/passes/differing.hpp"

namespace galley {
namespace {

/// Says whose a node is, for errors.
std::string whose(const Compilation& c, const GraphNode& node) {
  return (node.use == no_use ? "" : label(c.strategies, node.use) + ": ") + "'" + node.name + "'";
}

class Divided {
 public:
  explicit Divided(const Compilation& c) : c_(c), graph_(c.graph), differing_(c) {}

  Status run() {
    for (galley_tensor t = 1; t <= graph_.tensor_count(); ++t)
      if (differing_(t) && !graph_.tensor(t).unused) TRY_STATUS(check_kept(graph_.tensor(t)));
    for (const Section s :
         {Section::Window, Section::Forward, Section::Backward, Section::Update, Section::Evaluate, Section::Load, Section::Export})
      for (const galley_node n : graph_.section(s)) {
        differing_.add(graph_.node(n));
        TRY_STATUS(check(graph_.node(n)));
      }
    return ok();
  }

 private:
  const std::string& axis() const { return c_.options.lanes.axis; }

  /// What lasts and differs is a part, whose numbers lie as they are and begin as those of the whole.
  Status check_kept(const GraphTensor& t) const {
    const std::string is = (t.use == no_use ? "" : label(c_.strategies, t.use) + ": ") + "'" + t.name + "'";
    const std::string among = " processes of the axis '" + axis() + "'";
    if (!t.storage.format.empty())
      return recipe_error(is + " is divided among" + among + ", and would be kept in the format '" + t.storage.format + "'",
                          "leave it out of what is stored in formats: parts are kept as numbers");
    if (!lasts(t.kind) || t.storage.numbers_of) return ok();
    const galley_op* const op = t.initial.op.empty() ? nullptr : graph_.op(t.initial.op);
    const bool begins = !t.source.path.empty() || !op || t.initial.inputs.empty() || by_elements(op);
    if (!begins || c_.draft.beginnings.contains(t.id))
      return recipe_error(is + " begins as what would be computed from a whole tensor, of which the" + among + " have parts",
                          "leave it out, or the strategy that divides it");
    if (t.part || t.kind == GALLEY_KIND_CONSTANT) return ok();
    return recipe_error(is + " is made from what is divided among" + among + ", and is no part itself",
                        "leave it out, or the strategy that divides it");
  }

  Status check(const GraphNode& node) const {
    if (!differing_.reads(node)) return ok();
    const std::string part = " computes with a part of what is divided among processes of the axis '" + axis() + "'";
    if (node.section == Section::Load || node.section == Section::Export)
      return recipe_error(whose(c_, node) + part, "what is loaded or saved so is made from whole tensors: leave it out");
    if (node.op->flags & GALLEY_OP_RANDOM)
      return recipe_error(whose(c_, node) + part + ", and draws random numbers: each process would draw the same ones for other numbers",
                          "leave out what draws them there (dropout, stochastic rounding)");
    const bool updates = node.section == Section::Update || node.section == Section::Evaluate;
    if (updates && node.op != c_.roles.sum_squares && !goes_by_elements(node))
      return recipe_error(whose(c_, node) + part + ", and takes all of it together",
                          "take a strategy that updates each number by itself for what is divided");
    for (const galley_tensor t : written_by(node)) {
      const GraphTensor& x = graph_.tensor(t);
      if (!differing_(t) || x.part || (x.kind == GALLEY_KIND_TRANSIENT && !x.slice.of)) continue;
      if (x.kind == GALLEY_KIND_GRADIENT && graph_.tensor(x.parameter).part) continue;
      return recipe_error(whose(c_, node) + part + ", and writes '" + x.name + "', which is the same on all of them",
                          "an exchange along the axis has to make it the same: \"all_reduce\"");
    }
    return ok();
  }

  bool by_elements(const galley_op* op) const { return op->grain == GALLEY_GRAIN_ELEMENT || op == c_.roles.copy; }
  /// Whether a node does the same with each number of a part.
  bool goes_by_elements(const GraphNode& node) const {
    if (!by_elements(node.op)) return false;
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] && differing_(node.inputs[k]) && (!input_rule(node.op, k) || input_rule(node.op, k)->role != GALLEY_ROLE_ROWS))
        return false;
    for (size_t k = 0; k < node.outputs.size(); ++k)
      if (node.outputs[k] && (!output_rule(node.op, k) || output_rule(node.op, k)->role != GALLEY_ROLE_ROWS)) return false;
    return true;
  }

  const Compilation& c_;
  const Graph& graph_;
  Differing differing_;
};

}  // namespace

Status check_divided(const Compilation& c) { return c.options.lanes.together == 1 ? ok() : Divided(c).run(); }

}  // namespace galley
