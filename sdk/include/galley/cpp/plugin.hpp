// The C++ side of the SDK: guards that keep exceptions on this side of the C tables, and short words for what a plugin does. Header-only; it uses the C
// headers and nothing else of Galley's.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <deque>
#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "galley/galley.h"

namespace galley::sdk {

/// What a guarded function throws to answer with a status and a line of text.
struct Failure : std::runtime_error {
  Failure(galley_status status_, const std::string& text) : std::runtime_error(text), status(status_) {}
  galley_status status;
};

[[noreturn]] inline void invalid(const std::string& text) { throw Failure(GALLEY_INVALID, text); }
[[noreturn]] inline void unsupported(const std::string& text) { throw Failure(GALLEY_UNSUPPORTED, text); }

inline galley_status fill(galley_error* error, galley_status status, const char* text) noexcept {
  if (error) {
    error->code = status;
    std::snprintf(error->text, sizeof error->text, "%s", text);
  }
  return status;
}

/// Runs `body`; an exception becomes a status and a text. Nothing gets past it.
template <class Body>
galley_status guard(galley_error* error, Body&& body) noexcept {
  try {
    body();
    return GALLEY_OK;
  } catch (const Failure& failure) {
    return fill(error, failure.status, failure.what());
  } catch (const std::bad_alloc&) {
    return fill(error, GALLEY_FAILED, "out of memory");
  } catch (const std::exception& exception) {
    return fill(error, GALLEY_FAILED, exception.what());
  } catch (...) {
    return fill(error, GALLEY_FAILED, "an exception of unknown type");
  }
}

/// A list of attributes with its own storage: Attrs().i("heads", 4).f("eps", 1e-5).s("approximate", "tanh").
class Attrs {
 public:
  Attrs() = default;
  Attrs(const Attrs&) = delete;
  Attrs& operator=(const Attrs&) = delete;
  Attrs(Attrs&&) = default;             // a deque's elements stay where they are
  Attrs& operator=(Attrs&&) = default;
  Attrs& i(const char* name, int64_t value) & { return add(name, GALLEY_ATTR_I64, 1, &integers_.emplace_back(value)); }
  Attrs& f(const char* name, double value) & { return add(name, GALLEY_ATTR_F64, 1, &numbers_.emplace_back(value)); }
  Attrs& s(const char* name, const std::string& value) & {
    const std::string& kept = texts_.emplace_back(value);
    return add(name, GALLEY_ATTR_STRING, static_cast<uint32_t>(kept.size()), kept.c_str());
  }
  /// Several integers: a shape.
  Attrs& list(const char* name, std::vector<int64_t> values) & {
    const std::vector<int64_t>& kept = lists_.emplace_back(std::move(values));
    return add(name, GALLEY_ATTR_I64, static_cast<uint32_t>(kept.size()), kept.data());
  }
  Attrs&& list(const char* name, std::vector<int64_t> values) && { return std::move(list(name, std::move(values))); }
  Attrs&& i(const char* name, int64_t value) && { return std::move(i(name, value)); }
  Attrs&& f(const char* name, double value) && { return std::move(f(name, value)); }
  Attrs&& s(const char* name, const std::string& value) && { return std::move(s(name, value)); }
  /// A copy of an attribute of another node.
  Attrs& copy(const galley_attr& a) {
    if (a.type == GALLEY_ATTR_STRING) return s(a.name, static_cast<const char*>(a.data));
    if (a.count != 1 && a.type == GALLEY_ATTR_I64) {
      const auto* first = static_cast<const int64_t*>(a.data);
      return add(a.name, a.type, a.count, lists_.emplace_back(first, first + a.count).data());
    }
    if (a.count != 1) {
      const auto* first = static_cast<const double*>(a.data);
      return add(a.name, a.type, a.count, number_lists_.emplace_back(first, first + a.count).data());
    }
    return a.type == GALLEY_ATTR_I64 ? i(a.name, *static_cast<const int64_t*>(a.data)) : f(a.name, *static_cast<const double*>(a.data));
  }
  const galley_attr* const* data() const { return pointers_.data(); }
  uint32_t count() const { return static_cast<uint32_t>(pointers_.size()); }

 private:
  Attrs& add(const char* name, uint32_t type, uint32_t count, const void* data) {
    const std::string& kept = texts_.emplace_back(name);
    attrs_.push_back({sizeof(galley_attr), 1, kept.c_str(), data, type, count});
    pointers_.push_back(&attrs_.back());
    return *this;
  }
  std::deque<std::vector<int64_t>> lists_;
  std::deque<std::vector<double>> number_lists_;
  std::deque<int64_t> integers_;
  std::deque<double> numbers_;
  std::deque<std::string> texts_;
  std::deque<galley_attr> attrs_;
  std::vector<const galley_attr*> pointers_;
};

/// A node as an op's functions and kernels see it. Operands by index, attributes by name.
class Node {
 public:
  explicit Node(const galley_node_view* view) : view_(view) {}
  const galley_node_view* view() const { return view_; }
  const char* name() const { return view_->name; }
  bool has(uint32_t input) const { return input < view_->n_inputs && view_->inputs[input]; }
  bool has_out(uint32_t output) const { return output < view_->n_outputs && view_->outputs[output]; }
  const galley_operand& in(uint32_t i) const {
    if (!has(i)) invalid(std::string(view_->name) + ": input " + std::to_string(i) + " of " + view_->op + " is missing");
    return *view_->inputs[i];
  }
  const galley_operand& out(uint32_t i) const {
    if (!has_out(i)) invalid(std::string(view_->name) + ": output " + std::to_string(i) + " of " + view_->op + " is missing");
    return *view_->outputs[i];
  }
  template <class T> const T* read(uint32_t i) const { return has(i) ? static_cast<const T*>(view_->inputs[i]->data) : nullptr; }
  /// An input that is updated in place.
  template <class T> T* update(uint32_t i) const { return static_cast<T*>(in(i).data); }
  template <class T> T* write(uint32_t i) const { return has_out(i) ? static_cast<T*>(view_->outputs[i]->data) : nullptr; }
  bool accumulates(uint32_t output) const { return out(output).access == GALLEY_ACCUMULATE; }
  bool training() const { return view_->flags & GALLEY_NODE_TRAINING; }
  int64_t i(const char* name, int64_t otherwise) const { return galley_attr_i64(view_, name, otherwise); }
  double f(const char* name, double otherwise) const { return galley_attr_f64(view_, name, otherwise); }
  std::string s(const char* name, const char* otherwise) const { return galley_attr_string(view_, name, otherwise); }
  /// What keys this node's random numbers: its attribute "stream", or its name.
  uint64_t stream() const { return galley_name_hash(galley_attr_string(view_, "stream", view_->name)); }

 private:
  const galley_node_view* view_;
};

inline int64_t rows(const galley_operand& t) { return galley_operand_rows(&t); }
inline int64_t columns(const galley_operand& t) { return galley_operand_columns(&t); }
inline int64_t count(const galley_operand& t) { return galley_operand_count(&t); }

/// A plain operand.
inline galley_operand operand(void* data, const int64_t* shape, uint32_t rank, uint32_t dtype, uint32_t access, const char* name = "") {
  galley_operand t = {};
  t.size = sizeof t; t.revision = 1;
  t.name = name; t.data = data; t.shape = shape; t.rank = rank; t.dtype = dtype; t.access = access;
  return t;
}

/// "(4, 64, 768)": for messages.
inline std::string shape_text(const int64_t* shape, uint32_t rank) {
  std::string text = "(";
  for (uint32_t k = 0; k < rank; ++k) text += (k ? ", " : "") + std::to_string(shape[k]);
  return text + ")";
}
inline std::string shape_text(const galley_operand& t) { return shape_text(t.shape, t.rank); }

/// What a shape rule fills.
class Shapes {
 public:
  explicit Shapes(galley_shape* const* out) : out_(out) {}
  void set(uint32_t output, uint32_t dtype, const int64_t* shape, uint32_t rank) {
    out_[output]->rank = rank;
    out_[output]->dtype = dtype;
    for (uint32_t k = 0; k < rank; ++k) out_[output]->extents[k] = shape[k];
  }
  void set(uint32_t output, uint32_t dtype, std::initializer_list<int64_t> shape) { set(output, dtype, shape.begin(), static_cast<uint32_t>(shape.size())); }
  void like(uint32_t output, const galley_operand& t) { set(output, t.dtype, t.shape, t.rank); }
  /// Shape of `t` with another last extent.
  void like(uint32_t output, const galley_operand& t, int64_t last) {
    like(output, t);
    out_[output]->extents[t.rank - 1] = last;
  }
  void absent(uint32_t output) { set(output, 0, nullptr, 0); }

 private:
  galley_shape* const* out_;
};

/// The graph verbs as methods; each throws Failure with the host's text.
class Graph {
 public:
  Graph(const galley_graph_verbs* verbs, galley_graph* graph) : verbs_(verbs), graph_(graph) {}

  galley_tensor make(const galley_tensor_desc& desc) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return verbs_->tensor_make(graph_, &desc, &out, e); });
    return out;
  }
  /// A state of the shape of `like`, F32 zeros, named `name`; flags: GALLEY_TENSOR_….
  galley_tensor state(const std::string& name, const galley_tensor_info& like, uint64_t flags = 0) {
    galley_tensor_desc d = {};
    d.size = sizeof d; d.revision = 1;
    d.name = name.c_str(); d.shape = like.shape; d.rank = like.rank;
    d.dtype = GALLEY_F32; d.kind = GALLEY_KIND_STATE; d.flags = flags;
    return make(d);
  }
  galley_tensor_info info(galley_tensor t) {
    galley_tensor_info out = {};
    out.size = sizeof out; out.revision = 1;
    check([&](galley_error* e) { return verbs_->tensor_get(graph_, t, &out, e); });
    return out;
  }
  galley_node_info node(galley_node n) {
    galley_node_info out = {};
    out.size = sizeof out; out.revision = 1;
    check([&](galley_error* e) { return verbs_->node_get(graph_, n, &out, e); });
    return out;
  }
  /// 0 when there is none.
  galley_tensor find(const std::string& name) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return verbs_->tensor_find(graph_, name.c_str(), &out, e); });
    return out;
  }
  galley_node next_node(galley_node n) { return verbs_->node_next(graph_, n); }
  galley_tensor next_tensor(galley_tensor t) { return verbs_->tensor_next(graph_, t); }

  /// Appends a node and returns its outputs. `outputs`: 0 entries are made by the shape rule; bit i of `accumulate`: output i is added to.
  std::vector<galley_tensor> node(const char* op, const char* name, const std::vector<galley_tensor>& inputs, const Attrs& attrs = {},
                                  std::vector<galley_tensor> outputs = {0}, uint32_t accumulate = 0) {
    galley_node_desc d = {};
    d.size = sizeof d; d.revision = 1;
    d.op = op; d.name = name;
    d.inputs = inputs.data(); d.n_inputs = static_cast<uint32_t>(inputs.size());
    d.attrs = attrs.data(); d.n_attrs = attrs.count();
    d.n_outputs = static_cast<uint32_t>(outputs.size()); d.accumulate = accumulate;
    check([&](galley_error* e) { return verbs_->node_make(graph_, &d, outputs.data(), e); });
    return outputs;
  }
  void replace(galley_tensor from, galley_tensor to) {
    check([&](galley_error* e) { return verbs_->replace(graph_, from, to, e); });
  }
  galley_tensor scalar(uint32_t which) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return verbs_->scalar(graph_, which, &out, e); });
    return out;
  }
  galley_tensor option(const char* name) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return verbs_->option(graph_, name, &out, e); });
    return out;
  }
  void document(const std::string& file, const std::string& text) {
    check([&](galley_error* e) { return verbs_->document(graph_, file.c_str(), text.c_str(), e); });
  }
  void export_as(galley_tensor parameter, galley_tensor value) {
    check([&](galley_error* e) { return verbs_->export_as(graph_, parameter, value, e); });
  }
  void ignore(const std::string& pattern) {
    check([&](galley_error* e) { return verbs_->ignore(graph_, pattern.c_str(), e); });
  }
  void export_model(uint32_t what) {
    check([&](galley_error* e) { return verbs_->export_model(graph_, what, e); });
  }

 private:
  template <class Call>
  void check(Call&& call) {
    galley_error error = GALLEY_ERROR_INIT;
    const galley_status status = call(&error);
    if (status != GALLEY_OK) throw Failure(status, error.text);
  }
  const galley_graph_verbs* verbs_;
  galley_graph* graph_;
};

/// What a gradient rule is given; see galley_op.gradient.
struct Backward {
  Graph graph;
  galley_node_info node;
  const galley_tensor* d_outputs;
  const uint32_t* need;
  galley_tensor* d_inputs;
  uint32_t accumulate;
  bool needs(uint32_t input) const { return input < node.n_inputs && node.inputs[input] && need[input]; }
  /// The bit that a node's description takes when its output `output` goes to d_inputs[input].
  uint32_t adds(uint32_t input, uint32_t output = 0) const { return (accumulate >> input & 1u) << output; }
  const galley_attr* attr(const char* name) const {
    for (uint32_t k = 0; k < node.n_attrs; ++k)
      if (galley_same_text(node.attrs[k]->name, name)) return node.attrs[k];
    return nullptr;
  }
  /// All attributes of the forward node, for a backward node that takes the same.
  Attrs attrs() const {
    Attrs out;
    for (uint32_t k = 0; k < node.n_attrs; ++k) out.copy(*node.attrs[k]);
    return out;
  }
};

// ---- Ops: C functions made of C++ ones -------------------------------------------------------------------------------------

template <void (*F)(const Node&, Shapes&)>
galley_status infer(const galley_node_view* node, galley_shape* const* outputs, galley_error* error) noexcept {
  return guard(error, [&] { Shapes shapes(outputs); F(Node(node), shapes); });
}
template <void (*F)(Backward&)>
galley_status gradient(const galley_graph_verbs* verbs, galley_graph* graph, galley_node node, const galley_tensor* d_outputs, const uint32_t* need,
                       galley_tensor* d_inputs, uint32_t accumulate, galley_error* error) noexcept {
  return guard(error, [&] {
    Graph g(verbs, graph);
    Backward backward{g, g.node(node), d_outputs, need, d_inputs, accumulate};
    F(backward);
  });
}
template <void (*F)(const Node&, galley_cost&)>
galley_status cost(const galley_node_view* node, galley_cost* out, galley_error* error) noexcept {
  return guard(error, [&] { F(Node(node), *out); });
}
template <void (*F)(const Node&)>
galley_status reference(const galley_node_view* node, galley_error* error) noexcept {
  return guard(error, [&] { F(Node(node)); });
}

inline galley_operand_rule rule(const char* name, uint32_t role, uint32_t flags = 0, int32_t alias = -1) {
  return {sizeof(galley_operand_rule), 1, name, role, flags, alias, 0};
}

/// An example for tests: inputs by name, dtype, shape and range.
struct CaseInput {
  uint32_t dtype;             ///< 0: this optional input is absent
  std::vector<int64_t> shape;
  double low = -1, high = 1;
};

/// Keeps an op's tables alive; one static of this kind an op, filled by its folder. Registered by `register_op`.
class Op {
 public:
  explicit Op(const char* name, const char* summary) {
    op_.size = sizeof op_; op_.revision = 1;
    op_.name = name; op_.summary = summary;
  }
  Op(const Op&) = delete;
  Op& input(const char* name, uint32_t role, uint32_t flags = 0) { inputs_.push_back(rule(name, role, flags)); return *this; }
  Op& output(const char* name, uint32_t role, uint32_t flags = 0, int32_t alias = -1) { outputs_.push_back(rule(name, role, flags, alias)); return *this; }
  Op& flags(uint64_t flags) { op_.flags = flags; return *this; }
  Op& grain(uint32_t grain, int64_t block = 0) { op_.grain = grain; op_.grain_block = block; return *this; }
  template <void (*F)(const Node&, Shapes&)> Op& infer() { op_.infer = sdk::infer<F>; return *this; }
  template <void (*F)(Backward&)> Op& gradient() { op_.gradient = sdk::gradient<F>; return *this; }
  template <void (*F)(const Node&, galley_cost&)> Op& cost() { op_.cost = sdk::cost<F>; return *this; }
  template <void (*F)(const Node&)> Op& reference() { op_.reference = sdk::reference<F>; return *this; }
  /// One test case. `length`: positions of a sequence (0: rows).
  Op& test(const char* name, std::vector<CaseInput> inputs, Attrs attrs = {}, int64_t length = 0, uint32_t node_flags = GALLEY_NODE_TRAINING) {
    Case& c = cases_.emplace_back();
    c.attrs = std::move(attrs);
    c.inputs = std::move(inputs);
    for (const CaseInput& in : c.inputs) {
      c.operands.push_back(operand(nullptr, in.shape.data(), static_cast<uint32_t>(in.shape.size()), in.dtype, GALLEY_READ));
      c.low.push_back(in.low);
      c.high.push_back(in.high);
    }
    for (size_t k = 0; k < c.operands.size(); ++k) c.pointers.push_back(c.inputs[k].dtype ? &c.operands[k] : nullptr);
    c.view = {sizeof(galley_node_view), 1, op_.name, name, c.pointers.data(), nullptr, c.attrs.data(), static_cast<uint32_t>(c.pointers.size()), 0, c.attrs.count(), node_flags, 0, length};
    c.table = {sizeof(galley_op_case), 1, &c.view, c.low.data(), c.high.data()};
    return *this;
  }
  /// The finished table; call after everything else.
  const galley_op* table() {
    if (input_pointers_.empty() && output_pointers_.empty()) {
      for (const auto& r : inputs_) input_pointers_.push_back(&r);
      for (const auto& r : outputs_) output_pointers_.push_back(&r);
      for (const auto& c : cases_) case_pointers_.push_back(&c.table);
    }
    op_.inputs = input_pointers_.data(); op_.n_inputs = static_cast<uint32_t>(input_pointers_.size());
    op_.outputs = output_pointers_.data(); op_.n_outputs = static_cast<uint32_t>(output_pointers_.size());
    op_.cases = case_pointers_.data(); op_.n_cases = static_cast<uint32_t>(case_pointers_.size());
    return &op_;
  }

 private:
  struct Case {
    std::vector<CaseInput> inputs;
    std::deque<galley_operand> operands;
    std::vector<const galley_operand*> pointers;
    std::vector<double> low, high;
    Attrs attrs;
    galley_node_view view = {};
    galley_op_case table = {};
  };
  galley_op op_ = {};
  std::deque<galley_operand_rule> inputs_, outputs_;
  std::vector<const galley_operand_rule*> input_pointers_, output_pointers_;
  std::deque<Case> cases_;
  std::vector<const galley_op_case*> case_pointers_;
};

// ---- Kernels ------------------------------------------------------------------------------------------------------------------

/// The host, set by `open`. Kernels divide work with it: parallel(blocks, [&](int64_t block) { … }).
inline const galley_host*& host() {
  static const galley_host* h = nullptr;
  return h;
}

template <class Body>
void parallel(int64_t blocks, const Body& body) {
  host()->parallel(blocks, [](void* context, int64_t block) { (*static_cast<const Body*>(context))(block); }, const_cast<Body*>(&body));
}

/// The simplest kernel: a function of a node with addresses. `Supports` looks at dtypes and shapes; bytes of workspace come from `Workspace` (may be null).
struct Prepared {
  const galley_node_view* node;
  void* workspace;
};
template <void (*Run)(const Node&, void* workspace), bool (*Supports)(const Node&), int64_t (*Workspace)(const Node&, const galley_target&)>
struct KernelOf {
  static galley_status query(const galley_node_view* const* nodes, uint32_t n, const galley_target* target, galley_kernel_plan* out, galley_error* error) noexcept {
    return guard(error, [&] {
      if (n != 1) unsupported("one node at a time");
      // The variables are for GCC 12, which warns that a function's address is never null.
      constexpr auto supports = Supports;
      constexpr auto workspace = Workspace;
      if constexpr (supports != nullptr) {
        if (!supports(Node(nodes[0]))) unsupported("dtypes or shapes");
      }
      if constexpr (workspace != nullptr) out->workspace_bytes = workspace(Node(nodes[0]), *target);
    });
  }
  static galley_status prepare(const galley_node_view* const* nodes, uint32_t, const galley_target*, void* workspace, void** state, galley_error* error) noexcept {
    return guard(error, [&] { *state = new Prepared{nodes[0], workspace}; });
  }
  static galley_status enqueue(void* state, galley_queue*, galley_error* error) noexcept {
    return guard(error, [&] { const auto* p = static_cast<Prepared*>(state); Run(Node(p->node), p->workspace); });
  }
  static void release(void* state) noexcept { delete static_cast<Prepared*>(state); }
};

/// A table for a kernel made of plain functions: kernel<run>("gelu.cpu", "gelu", "cpu").
template <void (*Run)(const Node&, void*), bool (*Supports)(const Node&) = nullptr, int64_t (*Workspace)(const Node&, const galley_target&) = nullptr>
galley_kernel kernel(const char* name, const char* op, const char* device = "cpu") {
  using K = KernelOf<Run, Supports, Workspace>;
  galley_kernel k = {};
  k.size = sizeof k; k.revision = 1;
  k.name = name; k.op = op; k.device = device;
  k.query = K::query; k.prepare = K::prepare; k.enqueue = K::enqueue; k.release = K::release;
  return k;
}

/// A kernel with a state of its own: T::query(node, target, plan) checks and asks for workspace, T(node, target, workspace) builds it once the addresses are
/// final, run() enqueues.
template <class T>
struct KernelWithState {
  static galley_status query(const galley_node_view* const* nodes, uint32_t n, const galley_target* target, galley_kernel_plan* out, galley_error* error) noexcept {
    return guard(error, [&] {
      if (n != 1) unsupported("one node at a time");
      T::query(Node(nodes[0]), *target, *out);
    });
  }
  static galley_status prepare(const galley_node_view* const* nodes, uint32_t, const galley_target* target, void* workspace, void** state, galley_error* error) noexcept {
    return guard(error, [&] { *state = new T(Node(nodes[0]), *target, workspace); });
  }
  static galley_status enqueue(void* state, galley_queue*, galley_error* error) noexcept {
    return guard(error, [&] { static_cast<T*>(state)->run(); });
  }
  static void release(void* state) noexcept { delete static_cast<T*>(state); }
};

/// A table for such a kernel: kernel_of<OneDnn>("linear.onednn", "linear").
template <class T>
galley_kernel kernel_of(const char* name, const char* op, const char* device = "cpu") {
  using K = KernelWithState<T>;
  galley_kernel k = {};
  k.size = sizeof k; k.revision = 1;
  k.name = name; k.op = op; k.device = device;
  k.query = K::query; k.prepare = K::prepare; k.enqueue = K::enqueue; k.release = K::release;
  return k;
}

// ---- Registration and the entry -----------------------------------------------------------------------------------------

struct Registry {
  std::vector<const galley_strategy*> strategies;
  std::vector<const galley_op*> ops;
  std::vector<const galley_kernel*> kernels;
  std::vector<const galley_format*> formats;
  std::vector<const galley_device*> devices;
  std::deque<galley_kernel> kernel_tables;
};
inline Registry& registry() {
  static Registry r;
  return r;
}
/// At namespace scope: static const bool registered = add(op);
inline bool add(Op& op) { registry().ops.push_back(op.table()); return true; }
inline bool add(const galley_op* op) { registry().ops.push_back(op); return true; }
inline bool add(const galley_kernel& k) { registry().kernels.push_back(&registry().kernel_tables.emplace_back(k)); return true; }
inline bool add(const galley_format* f) { registry().formats.push_back(f); return true; }
inline bool add(const galley_device* d) { registry().devices.push_back(d); return true; }
inline bool add(const galley_strategy* s) { registry().strategies.push_back(s); return true; }

/// Fills the entry's tables from the registry; call it from `open`.
inline void publish(galley_entry& entry, const galley_host* h) {
  host() = h;
  Registry& r = registry();
  entry.strategies = r.strategies.data(); entry.n_strategies = static_cast<uint32_t>(r.strategies.size());
  entry.ops = r.ops.data(); entry.n_ops = static_cast<uint32_t>(r.ops.size());
  entry.kernels = r.kernels.data(); entry.n_kernels = static_cast<uint32_t>(r.kernels.size());
  entry.formats = r.formats.data(); entry.n_formats = static_cast<uint32_t>(r.formats.size());
  entry.devices = r.devices.data(); entry.n_devices = static_cast<uint32_t>(r.devices.size());
}

/// GALLEY_PLUGIN("adamw", "1.0.0"): the library's entry, once in a plugin (and once in each of its kernel libraries).
#define GALLEY_PLUGIN(id_, version_)                                                                                    \
  extern "C" GALLEY_EXPORT galley_entry galley_entry_v1;                                                                \
  static galley_status galley_plugin_open(const galley_host* h, galley_error*) noexcept {                               \
    galley::sdk::publish(galley_entry_v1, h);                                                                           \
    return GALLEY_OK;                                                                                                   \
  }                                                                                                                     \
  galley_entry galley_entry_v1 = {sizeof(galley_entry), 1, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR, id_, version_,           \
                                  galley_plugin_open, nullptr, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0, 0, 0}

}  // namespace galley::sdk
