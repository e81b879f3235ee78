// An op of the plugin, by its reference: shapes, gradients, roles, what is random, and what it makes of calls of other hosts.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "host/exec/checksum.hpp"
#include "host/plugins/abi.hpp"
#include "host/proofs/fenced.hpp"
#include "host/proofs/gradients.hpp"
#include "host/proofs/roles.hpp"
#include "host/tools/check/cases.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

bool same(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].has_value() != b[i].has_value()) return false;
    if (!a[i]) continue;
    if (a[i]->shape != b[i]->shape || a[i]->bytes != b[i]->bytes || a[i]->floats.size() != b[i]->floats.size()) return false;
    for (size_t k = 0; k < a[i]->floats.size(); ++k)
      if (a[i]->floats[k] != b[i]->floats[k] && !(std::isnan(a[i]->floats[k]) && std::isnan(b[i]->floats[k]))) return false;
  }
  return true;
}
bool same(const Made& a, const Made& b) { return same(a.inputs, b.inputs) && same(a.outputs, b.outputs); }

bool same_value(const galley_attr& a, const galley_attr& b) {
  AttrList one, other;
  one.set(a), other.set(b);
  return one.key() == other.key();
}

/// The size and dtype of each output as the shape rule says, or what it says instead.
struct Inferred {
  galley_status status = GALLEY_OK;
  std::string text;
  std::vector<galley_shape> shapes;
  bool operator==(const Inferred& other) const {
    if (status != other.status || shapes.size() != other.shapes.size()) return false;
    for (size_t i = 0; i < shapes.size(); ++i)
      if (shapes[i].dtype != other.shapes[i].dtype || shapes[i].rank != other.shapes[i].rank ||
          !std::equal(shapes[i].extents, shapes[i].extents + shapes[i].rank, other.shapes[i].extents))
        return false;
    return true;
  }
};

class OpCheck {
 public:
  OpCheck(const CheckContext& context, const galley_op& op, TestLog& log)
      : op_(op),
        log_(log),
        ops_([&plugins = context.plugins](std::string_view name) { return plugins.op(name).table; }),
        seed_(context.seed),
        of_format_(std::ranges::any_of(context.plugin.library->formats, [&](const galley_format* format) {
          return (format->pack_op && galley_same_text(format->pack_op, op.name)) || galley_same_text(format->unpack_op, op.name);
        })) {}

  Status run() {
    if (op_.n_cases == 0) return log_.unchecked("it declares no test cases"), ok();
    if (!op_.reference) return log_.unchecked("it has no reference"), ok();
    for (uint32_t c = 0; c < op_.n_cases; ++c) TRY_STATUS(check_case(*op_.cases[c]));
    check_attributes();
    return ok();
  }

 private:
  Status check_case(const galley_op_case& example) {
    case_ = example.node->name;
    std::mt19937_64 random(seed_ ^ checksum(std::string(op_.name) + "\n" + case_));
    const LoneNode node = TRY(LoneNode::of(&op_, example, random));
    const Result<Made> all = made_by(node, ops_), again = made_by(node, ops_);
    if (!all || !again) return find("", (all ? again : all).error().cause, rules::kReference), ok();
    if (!same(*all, *again))
      return find("", "its reference computes other numbers at other addresses, or in another run", rules::kSteady), ok();
    check_infer(node);
    check_flags(node);
    check_cost(node);
    TRY_STATUS(check_gradients(node, random));
    TRY_STATUS(check_cuts(node, *all));
    TRY_STATUS(check_random(node, *all));
    check_evaluation(node);
    check_sizes(node, example, random);
    return ok();
  }

  /// Attributes that no case has away from what holds without them: what kernels make of them is not known.
  void check_attributes() {
    for (uint32_t k = 0; k < op_.n_attrs; ++k) {
      const galley_attr_rule& rule = *op_.attrs[k];
      if (!rule.otherwise) continue;
      const auto differs = [&](const galley_op_case* example) {
        for (uint32_t a = 0; a < example->node->n_attrs; ++a)
          if (galley_same_text(example->node->attrs[a]->name, rule.name) && !same_value(*example->node->attrs[a], *rule.otherwise))
            return true;
        return false;
      };
      if (std::none_of(op_.cases, op_.cases + op_.n_cases, differs))
        log_.unchecked(std::string("attribute '") + rule.name + "': every case has its default");
    }
  }

  void find(const std::string& operand, const std::string& sentence, const char* rule, double size = INFINITY) {
    log_.find({"case '" + case_ + "'" + (operand.empty() ? "" : ", " + operand), sentence, rule, size});
  }

  Inferred infer(const galley_node_view& view) const {
    Inferred out;
    std::vector<galley_shape> shapes(op_.n_outputs, new_struct<galley_shape>());
    std::vector<galley_shape*> pointers;
    for (galley_shape& s : shapes) pointers.push_back(&s);
    galley_error error = GALLEY_ERROR_INIT;
    const Caller caller = caller_of(&op_, op_.name);
    const Status called = call_plugin(caller, "infer", [&](galley_error*) {
      out.status = op_.infer(op_.self, &view, pointers.data(), &error);
      return GALLEY_OK;
    });
    if (!called) return {GALLEY_FAILED, called.error().cause, {}};
    out.text = error.text;
    if (out.status == GALLEY_OK) out.shapes = shapes;
    return out;
  }

  /// The shape rule is pure: asked again, and on two threads at once, it says the same.
  void check_infer(const LoneNode& node) {
    const NodeParts parts(node, {});
    const Inferred first = infer(parts.view());
    std::vector<Inferred> others(6);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 2; ++t)
      threads.emplace_back([&, t] {
        for (size_t i = t; i < others.size(); i += 2) others[i] = infer(parts.view());
      });
    for (std::thread& t : threads) t.join();
    if (std::ranges::any_of(others, [&](const Inferred& other) { return !(other == first); }))
      find("", "its shape rule says something else when it is asked again", rules::kPure);
    else log_.held("shape rule, asked seven times");
  }

  /// What a newer host says with flags is refused, with a word, by everything that is given a node.
  void check_flags(const LoneNode& node) {
    for (const NodeParts::Flag flag : {NodeParts::Flag::Node, NodeParts::Flag::Operand, NodeParts::Flag::Attribute}) {
      NodeParts parts(node, {});
      if (!parts.set(flag)) continue;
      const Inferred said = infer(parts.view());
      const std::string where = std::string("a node with an unknown flag of ") + NodeParts::name(flag);
      if (said.status == GALLEY_OK) find(where, "its shape rule takes it", rules::kFlags);
      else if (said.text.empty()) find(where, "its shape rule refuses it without a word", rules::kText);
      else log_.held("unknown flags are refused");
    }
  }

  void check_cost(const LoneNode& node) {
    if (!op_.cost) return;
    const NodeParts parts(node, {});
    auto cost = new_struct<galley_cost>();
    const Status said = call_plugin(caller_of(&op_, op_.name), "cost",
                                    [&](galley_error* error) { return op_.cost(op_.self, &parts.view(), &cost, error); });
    if (!said) return find("", said.error().cause, rules::kCost);
    for (const auto& [name, number] : {std::pair{"flops", cost.flops}, {"bytes", cost.bytes}, {"link_bytes", cost.link_bytes}})
      if (!(number >= 0) || !std::isfinite(number)) return find("", printed("its cost says %s = %g", name, number), rules::kCost);
    log_.held("cost");
  }

  Status check_gradients(const LoneNode& node, std::mt19937_64& random) {
    const GradientCheck gradient = TRY(check_gradient(node, Depth::EveryChoice, ops_, random));
    if (!gradient.unchecked.empty()) {
      const char* const none = op_.gradient ? "" : ", and none is needed where only backward has the op";
      if (asks_for_gradients()) log_.unchecked("gradient: " + gradient.unchecked + none);
      return ok();
    }
    std::string list;
    for (const std::string& input : gradient.inputs) list += (list.empty() ? "gradient of " : ", ") + input;
    log_.held(list);
    for (const GradientFault& fault : gradient.faults) {
      const bool adds = fault.sentence.find("adds to it") != std::string::npos;
      find(fault.input, fault.sentence, adds ? rules::kGradientAdds : rules::kGradient, fault.share);
    }
    return ok();
  }

  Status check_cuts(const LoneNode& node, const Made& all) {
    const RoleCheck roles = TRY(check_roles(node, all, ops_)), grain = TRY(check_grain(node, all, ops_));
    if (!roles.cut.empty()) log_.held("rows in parts");
    if (!grain.cut.empty()) log_.held("elements in parts");
    for (const RoleFault& fault : roles.faults) find(fault.operand, fault.sentence, rules::kRoles, fault.share);
    for (const RoleFault& fault : grain.faults) find(fault.operand, fault.sentence, rules::kGrain, fault.share);
    return ok();
  }

  /// Random numbers are those of the node's name and of the row in the window.
  Status check_random(const LoneNode& node, const Made& all) {
    const size_t at = random_input();
    if (at == node.inputs.size() || at >= node.inputs.size() || !node.inputs[at] || !(op_.flags & GALLEY_OP_RANDOM)) return ok();
    if (node.flags & GALLEY_NODE_TRAINING && !node.attrs.find("stream")) {
      LoneNode other = node;
      other.name += " of another name";
      const Made named = TRY(made_by(other, ops_));
      LoneNode later = node;
      reinterpret_cast<int64_t*>(later.inputs[at]->bytes.data())[1] += 1;
      if (same(named, all) && !same(TRY(made_by(later, ops_)).outputs, all.outputs))
        find("", "a node of another name draws the same numbers", rules::kNodeHash);
      else log_.held("random numbers by name");
    }
    // The rows in two micro-batches, of which the second begins at a later row of the window.
    int64_t rows = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (const galley_operand_rule& rule = *input_rule(&op_, i); node.inputs[i] && rule.role == GALLEY_ROLE_ROWS)
        rows = rows_of(rule, node.inputs[i]->shape);
    const int64_t sequences = node.length > 0 ? rows / node.length : 0;
    if (sequences < 2 || rows % node.length != 0 || node.first_row != 0) return ok();
    const LoneNode second = of_rows(node, rows, node.length, rows - node.length, at, 1);
    const Result<Made> made = made_by(second, ops_);
    if (!made) return find("", "of the rows of a second micro-batch: " + made.error().cause, rules::kBatches), ok();
    for (size_t k = 0; k < all.outputs.size(); ++k) {
      if (!all.outputs[k] || !all.outputs[k]->floating() || output_rule(&op_, k)->role != GALLEY_ROLE_ROWS) continue;
      const auto &part = made->outputs[k]->floats, &of_all = all.outputs[k]->floats;
      const size_t skipped = of_all.size() - part.size();
      if (!std::equal(part.begin(), part.end(), of_all.begin() + static_cast<std::ptrdiff_t>(skipped)))
        return find("output " + std::to_string(k), "rows of a second micro-batch draw other numbers than in one batch", rules::kBatches),
               ok();
    }
    log_.held("random numbers by rows of the window");
    return ok();
  }

  void check_evaluation(LoneNode node) {
    if (!(op_.flags & GALLEY_OP_TRAINING_ONLY) || op_.n_outputs == 0 || node.inputs.empty() || !node.inputs[0]) return;
    node.flags &= ~GALLEY_NODE_TRAINING;
    const Result<Made> made = made_by(node, ops_);
    if (!made || !made->outputs[0] || made->outputs[0]->floats != node.inputs[0]->floats)
      find("output 0", made ? "outside of training it is another one than input 0" : made.error().cause, rules::kEvaluation);
    else log_.held("nothing outside of training");
  }

  /// Other sizes, and operands that do not fit together: what the shape rule takes, the reference computes or refuses, and touches nothing
  /// else.
  void check_sizes(const LoneNode& node, const galley_op_case& example, std::mt19937_64& random) {
    for (const OtherSize& size : other_sizes(node, example, random)) {
      const LoneNode& other = size.node;
      const std::string& what = size.what;
      const NodeParts parts(other, {});
      const Inferred said = infer(parts.view());
      if (said.status != GALLEY_OK) {
        if (said.text.empty()) find(what, "its shape rule refuses it without a word", rules::kText);
        continue;
      }
      log_.doing("case '" + case_ + "', " + what + ", which its shape rule takes", rules::kInfer);
      for (const Edge edge : {Edge::After, Edge::Before}) (void)reference_in_fences(other, said.shapes, edge);
      log_.doing();
    }
    const LoneNode none = empty(node);
    const NodeParts parts(none, {});
    log_.doing("case '" + case_ + "', no rows", rules::kEmpty);
    if (const Inferred said = infer(parts.view()); said.status != GALLEY_OK && said.text.empty())
      find("no rows", "its shape rule refuses it without a word", rules::kEmpty);
    log_.doing();
    log_.held("other sizes");
  }

  static Status reference_in_fences(const LoneNode& node, const std::vector<galley_shape>& shapes, Edge edge) {
    Fenced fences(edge);
    Values outputs;
    for (const galley_shape& s : shapes)
      outputs.push_back(s.dtype ? std::optional(Numbers::of(s.dtype, Shape(s.extents, s.extents + s.rank))) : std::nullopt);
    NodeParts parts(node, outputs, NodeParts::As::Doubles);
    parts.place([&](const Numbers& n) {
      const void* const data = const_cast<Numbers&>(n).data();
      const size_t bytes = n.floating() ? n.floats.size() * sizeof(double) : n.bytes.size();
      return static_cast<void*>(fences.add({static_cast<const std::byte*>(data), bytes}));
    });
    const galley_op& op = *node.op;
    return call_plugin(
        caller_of(&op, op.name), "reference", [&](galley_error* error) { return op.reference(op.self, &parts.view(), error); }, Phase::Run);
  }

  /// Whether a graph may ask for the gradient of an input: not of an op of the update, and not of a format's.
  bool asks_for_gradients() const {
    const auto wants = [&](const galley_operand_rule* input) { return !(input->flags & GALLEY_OPERAND_NO_GRADIENT); };
    return std::any_of(op_.inputs, op_.inputs + op_.n_inputs, wants) && !of_format_;
  }

  size_t random_input() const {
    for (size_t i = 0; i < op_.n_inputs; ++i)
      if (std::string_view(op_.inputs[i]->name) == "random") return i;
    return op_.n_inputs;
  }

  const galley_op& op_;
  TestLog& log_;
  OpLookup ops_;
  uint64_t seed_;
  bool of_format_;
  std::string case_;
};

}  // namespace

Status check_op(const CheckContext& context, const galley_op& op, TestLog& log) { return OpCheck(context, op, log).run(); }

}  // namespace galley
