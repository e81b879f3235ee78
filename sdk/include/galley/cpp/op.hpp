// Ops: turns C++ functions into the C functions of an op, and builds its tables and test cases.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "galley/cpp/graph.hpp"

/// The device of a kernel that names none: in a library of kernels for another device, the build says which.
#ifndef GALLEY_KERNEL_DEVICE
#define GALLEY_KERNEL_DEVICE "cpu"
#endif

namespace galley::sdk {

template <void (*F)(const Node&, Shapes&)>
galley_status infer(void*, const galley_node_view* node, galley_shape* const* outputs, galley_error* error) noexcept {
  return guard(error, [&] {
    Shapes shapes(outputs);
    F(Node(node), shapes);
  });
}
template <void (*F)(Backward&)>
galley_status gradient(void*, const galley_graph_verbs* verbs, galley_graph* graph, const galley_gradient_call* given,
                       galley_error* error) noexcept {
  return guard(error, [&] {
    const galley_gradient_call call = read(given);
    Graph g(verbs, graph);
    Backward backward{g, g.node(call.node), call.d_outputs, call.need, call.d_inputs, call.accumulate};
    F(backward);
  });
}
template <void (*F)(const Node&, galley_cost&)>
galley_status cost(void*, const galley_node_view* node, galley_cost* out, galley_error* error) noexcept {
  return guard(error, [&] {
    galley_cost answer = read(out);
    F(Node(node), answer);
    galley_assign(out, &answer);
  });
}
template <void (*F)(const Node&)>
galley_status reference(void*, const galley_node_view* node, galley_error* error) noexcept {
  return guard(error, [&] { F(Node(node)); });
}

inline galley_operand_rule rule(const char* name, uint32_t role, uint64_t flags = 0, int32_t alias = -1) {
  galley_operand_rule out = fresh<galley_operand_rule>();
  out.name = name;
  out.role = role;
  out.flags = flags;
  out.alias = alias;
  return out;
}

/// The rule of an attribute, with its own storage.
class AttrRule {
 public:
  AttrRule(const char* name, uint32_t type, uint64_t flags, const char* summary) {
    table.name = name;
    table.type = type;
    table.flags = flags;
    table.summary = summary;
  }
  AttrRule(const char* name, Attrs otherwise, const char* summary) : otherwise_(std::move(otherwise)) {
    table.name = name;
    table.type = otherwise_.data()[0]->type;
    table.otherwise = otherwise_.data()[0];
    table.summary = summary;
  }
  galley_attr_rule table = fresh<galley_attr_rule>();

 private:
  Attrs otherwise_;
};

/// One input of a test case: dtype, shape, and the range of its values.
struct CaseInput {
  uint32_t dtype;  ///< 0: this optional input is absent
  std::vector<int64_t> shape;
  double low = -1, high = 1;
};

/// An op and its tables. Define one object at namespace scope, and fill it once, where it is registered:
///   Op step("signsgd_step", "p = p − lr · sign(m)");
///   const bool registered = add(step.input(…).infer<infer>().reference<reference>());
class Op {
 public:
  explicit Op(const char* name, const char* summary) {
    op_.name = name;
    op_.summary = summary;
  }
  Op(const Op&) = delete;
  Op& input(const char* name, uint32_t role, uint64_t flags = 0) {
    inputs_.push_back(rule(name, role, flags));
    return *this;
  }
  Op& output(const char* name, uint32_t role, uint64_t flags = 0, int32_t alias = -1) {
    outputs_.push_back(rule(name, role, flags, alias));
    return *this;
  }
  /// Attributes, and what holds for a node without them: integer("transposed", 0, "…").
  Op& integer(const char* name, int64_t otherwise, const char* summary) { return attr(name, Attrs().i(name, otherwise), summary); }
  Op& number(const char* name, double otherwise, const char* summary) { return attr(name, Attrs().f(name, otherwise), summary); }
  Op& string(const char* name, const char* otherwise, const char* summary) { return attr(name, Attrs().s(name, otherwise), summary); }
  /// One that each node has, or for which the summary says what holds otherwise. `type`: GALLEY_ATTR_…, `flags`: GALLEY_ATTR_REQUIRED, …
  Op& attr(const char* name, uint32_t type, uint64_t flags, const char* summary) {
    attrs_.emplace_back(name, type, flags, summary);
    return *this;
  }
  Op& flags(uint64_t flags) {
    op_.flags |= flags;
    return *this;
  }
  Op& grain(uint32_t grain, int64_t block = 0) {
    op_.grain = grain;
    op_.grain_block = block;
    return *this;
  }
  template <void (*F)(const Node&, Shapes&)>
  Op& infer() {
    op_.infer = sdk::infer<F>;
    return *this;
  }
  template <void (*F)(Backward&)>
  Op& gradient() {
    op_.gradient = sdk::gradient<F>;
    return *this;
  }
  template <void (*F)(const Node&, galley_cost&)>
  Op& cost() {
    op_.cost = sdk::cost<F>;
    return *this;
  }
  template <void (*F)(const Node&)>
  Op& reference() {
    op_.reference = sdk::reference<F>;
    return *this;
  }
  /// Adds a test case. `length`: positions per sequence (0: rows).
  Op& test(const char* name, std::vector<CaseInput> inputs, Attrs attrs = {}, int64_t length = 0,
           uint64_t node_flags = GALLEY_NODE_TRAINING) {
    Case& c = cases_.emplace_back();
    c.attrs = std::move(attrs);
    c.inputs = std::move(inputs);
    for (const CaseInput& in : c.inputs) {
      c.operands.push_back(operand(nullptr, in.shape.data(), static_cast<uint32_t>(in.shape.size()), in.dtype, GALLEY_READ));
      c.low.push_back(in.low);
      c.high.push_back(in.high);
    }
    for (size_t k = 0; k < c.operands.size(); ++k) c.pointers.push_back(c.inputs[k].dtype ? &c.operands[k] : nullptr);
    c.view.op = op_.name;
    c.view.name = name;
    c.view.inputs = c.pointers.data();
    c.view.attrs = c.attrs.data();
    c.view.n_inputs = static_cast<uint32_t>(c.pointers.size());
    c.view.n_attrs = c.attrs.count();
    c.view.flags = node_flags;
    c.view.length = length;
    c.view.block = -1;
    c.table.node = &c.view;
    c.table.low = c.low.data();
    c.table.high = c.high.data();
    return *this;
  }
  /// Returns the finished table; call it last.
  const galley_op* table() {
    if (input_pointers_.empty() && output_pointers_.empty()) {
      for (const auto& a : attrs_) attr_pointers_.push_back(&a.table);
      for (const auto& r : inputs_) input_pointers_.push_back(&r);
      for (const auto& r : outputs_) output_pointers_.push_back(&r);
      for (const auto& c : cases_) case_pointers_.push_back(&c.table);
    }
    op_.inputs = input_pointers_.data();
    op_.n_inputs = static_cast<uint32_t>(input_pointers_.size());
    op_.outputs = output_pointers_.data();
    op_.n_outputs = static_cast<uint32_t>(output_pointers_.size());
    op_.attrs = attr_pointers_.data();
    op_.n_attrs = static_cast<uint32_t>(attr_pointers_.size());
    op_.cases = case_pointers_.data();
    op_.n_cases = static_cast<uint32_t>(case_pointers_.size());
    return &op_;
  }

 private:
  struct Case {
    std::vector<CaseInput> inputs;
    std::deque<galley_operand> operands;
    std::vector<const galley_operand*> pointers;
    std::vector<double> low, high;
    Attrs attrs;
    galley_node_view view = fresh<galley_node_view>();
    galley_op_case table = fresh<galley_op_case>();
  };
  Op& attr(const char* name, Attrs otherwise, const char* summary) {
    attrs_.emplace_back(name, std::move(otherwise), summary);
    return *this;
  }

  galley_op op_ = fresh<galley_op>();
  std::deque<galley_operand_rule> inputs_, outputs_;
  std::deque<AttrRule> attrs_;
  std::vector<const galley_attr_rule*> attr_pointers_;
  std::vector<const galley_operand_rule*> input_pointers_, output_pointers_;
  std::deque<Case> cases_;
  std::vector<const galley_op_case*> case_pointers_;
};

}  // namespace galley::sdk
