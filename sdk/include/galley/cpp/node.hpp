// Nodes and operands in C++, and a guard that keeps exceptions from crossing the C ABI.
#pragma once

#include <cstring>
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

/// Returns a struct of the ABI with size and revision set and all other fields 0.
template <class T>
constexpr T fresh() {
  T out = {};
  out.size = static_cast<uint32_t>(sizeof(T));
  out.revision = 1;
  return out;
}
/// A guarded function throws this to return a status, a line of text and a hint.
struct Failure : std::runtime_error {
  Failure(galley_status status_, const std::string& text, std::string hint_ = {})
      : std::runtime_error(text), status(status_), hint(std::move(hint_)) {}
  galley_status status;
  std::string hint;
};

[[noreturn]] inline void invalid(const std::string& text, const std::string& hint = {}) { throw Failure(GALLEY_INVALID, text, hint); }
[[noreturn]] inline void unsupported(const std::string& text) { throw Failure(GALLEY_UNSUPPORTED, text); }

/// Whether a struct of the host's means what this header says, all that it points to included: galley_understood.
template <class T>
auto understood(const T* p, int = 0) -> decltype(uint64_t{p->flags}, bool()) {
  return galley_understood(p, GALLEY_HAS(p, T, flags) ? p->flags : 0, 0) != 0;
}
template <class T>
bool understood(const T* p, long) {
  return galley_understood(p, 0, 0) != 0;
}
inline bool understood(const galley_node_view* p, int) { return galley_node_understood(p) != 0; }
inline bool understood(const galley_tensor_info* p, int) {
  if (GALLEY_HAS(p, galley_tensor_info, part) && p->part && !galley_understood(p->part, 0, 0)) return false;
  return galley_understood(p, p->flags, GALLEY_TENSOR_KNOWN) != 0;
}
inline bool understood(const galley_node_info* p, int) { return galley_understood(p, p->op_flags, GALLEY_OP_KNOWN) != 0; }
inline bool understood(const galley_run_info* p, int) {
  if (GALLEY_HAS(p, galley_run_info, axes))
    for (uint32_t i = 0; i < p->n_axes; ++i)
      if (!galley_understood(p->axes[i], p->axes[i]->flags, 0)) return false;
  return galley_understood(p, p->flags, GALLEY_RUN_KNOWN) != 0;
}
inline bool understood(const galley_target* p, int) { return galley_target_understood(p) != 0; }
inline bool understood(const galley_kernel_plan* p, int) { return galley_understood(p, p->flags, GALLEY_PLAN_KNOWN) != 0; }
inline bool understood(const galley_kernel_setup* p, int) { return galley_understood(p, 0, 0) && galley_target_understood(p->target); }
inline bool understood(const galley_device_options* p, int) {
  return galley_understood(p, p->flags, 0) && galley_target_understood(p->target);
}
inline bool understood(const galley_saved_set* p, int) { return galley_saved_set_understood(p) != 0; }
inline bool understood(const galley_step_event* p, int) { return galley_understood(p, p->flags, GALLEY_STEP_KNOWN) != 0; }
inline bool understood(const galley_validated_event* p, int) { return galley_understood(p, p->flags, GALLEY_VALIDATED_KNOWN) != 0; }
inline bool understood(const galley_subject* p, int) {
  return galley_understood(p, p->tensor_flags, GALLEY_TENSOR_KNOWN) && galley_understood(p, p->op_flags, GALLEY_OP_KNOWN);
}

/// Throws, with `status`, where it means more.
template <class T>
void understand(const T* p, galley_status status = GALLEY_INVALID) {
  if (!understood(p, 0))
    throw Failure(status, "what Galley says has flags or a revision that this plugin does not know", "build the plugin with a newer SDK");
}

/// Returns a copy of a struct of the host's, whatever its size, as a struct of this header. Throws where it means more than that says.
template <class T>
T read(const T* from, galley_status status = GALLEY_INVALID) {
  understand(from, status);
  T out = fresh<T>();
  galley_assign(&out, from);
  return out;
}

/// Copies text into an array of `room` bytes. Text that is too long is cut between two UTF-8 characters.
inline void put_text(char* out, size_t room, const char* text) noexcept {
  size_t n = std::strlen(text);
  if (n >= room) {
    n = room - 1;
    while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0u) == 0x80u) --n;
  }
  std::memcpy(out, text, n);
  out[n] = '\0';
}

inline galley_status fill(galley_error* error, galley_status status, const char* text, const char* hint = "") noexcept {
  if (!error) return status;
  error->code = status;
  put_text(error->text, sizeof error->text, text);
  if (GALLEY_HAS(error, galley_error, hint)) put_text(error->hint, sizeof error->hint, hint);
  return status;
}

/// Runs `body`. Every exception becomes a status and a text.
template <class Body>
galley_status guard(galley_error* error, Body&& body) noexcept {
  try {
    body();
    return GALLEY_OK;
  } catch (const Failure& failure) {
    return fill(error, failure.status, failure.what(), failure.hint.c_str());
  } catch (const std::bad_alloc&) {
    return fill(error, GALLEY_NO_MEMORY, "out of memory");
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
  Attrs(Attrs&&) = default;  // the elements of a deque keep their addresses
  Attrs& operator=(Attrs&&) = default;
  Attrs& i(const char* name, int64_t value) & { return add(name, GALLEY_ATTR_I64, 1, &integers_.emplace_back(value)); }
  Attrs& f(const char* name, double value) & { return add(name, GALLEY_ATTR_F64, 1, &numbers_.emplace_back(value)); }
  Attrs& s(const char* name, const std::string& value) & {
    const std::string& kept = texts_.emplace_back(value);
    return add(name, GALLEY_ATTR_STRING, static_cast<uint32_t>(kept.size()), kept.c_str());
  }
  /// A list of integers, for example a shape; `numbers`: of numbers.
  Attrs& list(const char* name, std::vector<int64_t> values) & {
    const std::vector<int64_t>& kept = lists_.emplace_back(std::move(values));
    return add(name, GALLEY_ATTR_I64, static_cast<uint32_t>(kept.size()), kept.data());
  }
  Attrs& numbers(const char* name, std::vector<double> values) & {
    const std::vector<double>& kept = number_lists_.emplace_back(std::move(values));
    return add(name, GALLEY_ATTR_F64, static_cast<uint32_t>(kept.size()), kept.data());
  }
  Attrs&& list(const char* name, std::vector<int64_t> values) && { return std::move(list(name, std::move(values))); }
  Attrs&& numbers(const char* name, std::vector<double> values) && { return std::move(numbers(name, std::move(values))); }
  Attrs&& i(const char* name, int64_t value) && { return std::move(i(name, value)); }
  Attrs&& f(const char* name, double value) && { return std::move(f(name, value)); }
  Attrs&& s(const char* name, const std::string& value) && { return std::move(s(name, value)); }
  /// Adds a copy of another node's attribute.
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
    attrs_.push_back({sizeof(galley_attr), 1, kept.c_str(), data, type, count, 0});
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

/// A node as the functions of ops and kernels see it. Operands are accessed by index, attributes by name.
class Node {
 public:
  /// Throws Failure with `status` where the host says more of the node than this header knows.
  explicit Node(const galley_node_view* view, galley_status status = GALLEY_INVALID) : view_(view) { understand(view, status); }
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
  template <class T>
  const T* read(uint32_t i) const {
    return has(i) ? static_cast<const T*>(view_->inputs[i]->data) : nullptr;
  }
  /// An input that is updated in place.
  template <class T>
  T* update(uint32_t i) const {
    return static_cast<T*>(in(i).data);
  }
  template <class T>
  T* write(uint32_t i) const {
    return has_out(i) ? static_cast<T*>(view_->outputs[i]->data) : nullptr;
  }
  bool accumulates(uint32_t output) const { return out(output).access == GALLEY_ACCUMULATE; }
  bool training() const { return view_->flags & GALLEY_NODE_TRAINING; }
  /// Index of the repeated block of the model that the node belongs to; -1: none.
  int64_t block() const { return GALLEY_HAS(view_, galley_node_view, block) ? view_->block : -1; }
  int64_t i(const char* name, int64_t otherwise) const { return galley_attr_i64(view_, name, otherwise); }
  double f(const char* name, double otherwise) const { return galley_attr_f64(view_, name, otherwise); }
  std::string s(const char* name, const char* otherwise) const { return galley_attr_string(view_, name, otherwise); }
  /// The dtype that the attribute "dtype" gives to outputs with GALLEY_OPERAND_ANY_DTYPE.
  uint32_t dtype(uint32_t otherwise) const {
    const std::string text = s("dtype", "");
    if (text.empty()) return otherwise;
    if (text == "f32") return GALLEY_F32;
    if (text == "bf16") return GALLEY_BF16;
    if (text == "f16") return GALLEY_F16;
    invalid(std::string(view_->name) + ": dtype = '" + text + "'; it has to be f32, bf16 or f16");
  }
  /// The part of the random numbers' key that belongs to this node: a hash of its attribute "stream", or else of its name.
  uint64_t stream() const { return galley_name_hash(galley_attr_string(view_, "stream", view_->name)); }

 private:
  const galley_node_view* view_;
};

inline int64_t rows(const galley_operand& t) { return galley_operand_rows(&t); }
inline int64_t columns(const galley_operand& t) { return galley_operand_columns(&t); }
inline int64_t count(const galley_operand& t) { return galley_operand_count(&t); }

/// The index that the first number of an input in rows has in the whole tensor, if the node is about a part of it.
inline int64_t first_number(const Node& node, uint32_t input) {
  return node.view()->first_row * (node.in(input).rank > 1 ? columns(node.in(input)) : 1);
}

/// The option of an operand's format; `otherwise` where it is not given.
inline int64_t option(const galley_operand& t, const char* name, int64_t otherwise) {
  for (uint32_t i = 0; i < t.n_attrs; ++i)
    if (const galley_attr& a = *t.attrs[i]; galley_same_text(a.name, name) && a.type == GALLEY_ATTR_I64 && a.count)
      return *static_cast<const int64_t*>(a.data);
  return otherwise;
}

/// Makes an operand without a format.
inline galley_operand operand(void* data, const int64_t* shape, uint32_t rank, uint32_t dtype, uint32_t access, const char* name = "") {
  galley_operand t = fresh<galley_operand>();
  t.name = name;
  t.data = data;
  t.shape = shape;
  t.rank = rank;
  t.dtype = dtype;
  t.access = access;
  return t;
}

/// "(4, 64, 768)": for messages.
inline std::string shape_text(const int64_t* shape, uint32_t rank) {
  std::string text = "(";
  for (uint32_t k = 0; k < rank; ++k) text += (k ? ", " : "") + std::to_string(shape[k]);
  return text + ")";
}
inline std::string shape_text(const std::vector<int64_t>& shape) { return shape_text(shape.data(), static_cast<uint32_t>(shape.size())); }
inline std::string shape_text(const galley_operand& t) { return shape_text(t.shape, t.rank); }

/// Receives the results of a shape rule.
class Shapes {
 public:
  explicit Shapes(galley_shape* const* out) : out_(out) {}
  void set(uint32_t output, uint32_t dtype, const int64_t* shape, uint32_t rank) {
    if (rank > GALLEY_MAX_RANK) throw Failure(GALLEY_FAILED, "an output of rank " + std::to_string(rank));
    out_[output]->rank = rank;
    out_[output]->dtype = dtype;
    for (uint32_t k = 0; k < rank; ++k) out_[output]->extents[k] = shape[k];
  }
  void set(uint32_t output, uint32_t dtype, std::initializer_list<int64_t> shape) {
    set(output, dtype, shape.begin(), static_cast<uint32_t>(shape.size()));
  }
  void like(uint32_t output, const galley_operand& t) { set(output, t.dtype, t.shape, t.rank); }
  /// The shape of `t` with another last extent.
  void like(uint32_t output, const galley_operand& t, int64_t last) {
    like(output, t);
    out_[output]->extents[t.rank - 1] = last;
  }
  void absent(uint32_t output) { set(output, 0, nullptr, 0); }

 private:
  galley_shape* const* out_;
};

}  // namespace galley::sdk
