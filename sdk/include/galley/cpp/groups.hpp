// Kernels that compute several nodes at once: groups of nodes, chains, and groups of chains.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <type_traits>
#include <vector>

#include "galley/cpp/plugin.hpp"

namespace galley::sdk {

using Nodes = std::vector<Node>;

/// Whether two operands of a chain's nodes are the same: what one makes and the other reads.
inline bool same_operand(const galley_operand& a, const galley_operand& b) { return galley_same_text(a.name, b.name); }

namespace detail {

/// The table of a kernel that takes all nodes of a launch: `T::query(Nodes, target, plan)`, `T(Nodes, setup)`, `run()`.
template <class T>
struct NodesTable {
  static Nodes all(const galley_node_view* const* nodes, uint32_t n, galley_status status = GALLEY_INVALID) {
    Nodes out;
    out.reserve(n);
    for (uint32_t i = 0; i < n; ++i) out.emplace_back(nodes[i], status);
    return out;
  }
  static galley_status query(void*, const galley_node_view* const* nodes, uint32_t n, const galley_target* target, galley_kernel_plan* out,
                             galley_error* error) noexcept {
    return guard(error, [&] {
      galley_kernel_plan plan = read(out, GALLEY_UNSUPPORTED);
      T::query(all(nodes, n, GALLEY_UNSUPPORTED), read(target, GALLEY_UNSUPPORTED), plan);
      galley_assign(out, &plan);
    });
  }
  static galley_status prepare(void*, const galley_node_view* const* nodes, uint32_t n, const galley_kernel_setup* setup, void** state,
                               galley_error* error) noexcept {
    return guard(error, [&] { *state = new T(all(nodes, n), read(setup)); });
  }
};

}  // namespace detail

/// A kernel of groups, of chains ("a>b"), or of groups of chains: nodes_kernel<Steps>("adamw_step.cpu", "adamw_step").
/// T::query(nodes, target, plan) checks the nodes, whose number is a multiple of the chain's length, and sets workspace, constants and
/// priority. T(nodes, setup) is constructed when the addresses are final; nodes stay valid as long as it lives. run(), or run(queue),
/// enqueues.
template <class T>
galley_kernel nodes_kernel(const char* name, const char* op, const char* device = GALLEY_KERNEL_DEVICE,
                           uint64_t flags = GALLEY_KERNEL_GROUPS) {
  galley_kernel k = fresh<galley_kernel>();
  k.name = name;
  k.op = op;
  k.device = device;
  k.query = detail::NodesTable<T>::query;
  k.prepare = detail::NodesTable<T>::prepare;
  k.enqueue = [](void* state, galley_queue* queue, galley_error* error) noexcept {
    return guard(error, [&] { detail::run_kernel(*static_cast<T*>(state), queue, 0); });
  };
  k.release = [](void* state) noexcept { delete static_cast<T*>(state); };
  k.flags = flags;
  return k;
}

namespace detail {

/// Adds the four kernels of an optimizer's rule (steps.hpp, galley/cuda/steps.hpp): make(name, op, links, stored).
template <class Make>
bool add_steps(const std::string& op, const std::string& device, std::initializer_list<KnownOp> known, const Make& make) {
  static std::deque<std::string> texts;  // which kernels point to
  const auto text = [&](const std::string& t) { return texts.emplace_back(t).c_str(); };
  const auto one = [&](const char* kind, const char* chain, auto links, auto stored) {
    galley_kernel kernel = make(text(op + kind + "." + device), text(op + chain), links, stored);
    if (stored()) kernel.flags |= GALLEY_KERNEL_FORMATS;
    return add(kernel, known);
  };
  constexpr std::integral_constant<size_t, 1> alone;
  constexpr std::integral_constant<size_t, 2> copied;
  return one("", "", alone, std::false_type()) && one("_copy", ">copy", copied, std::false_type()) &&
         one("_stored", "", alone, std::true_type()) && one("_stored_copy", ">copy", copied, std::true_type());
}

}  // namespace detail

/// The blocks of several nodes in a row.
class Blocks {
 public:
  void add(int64_t blocks) { ends_.push_back(total() + blocks); }
  int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Where a node's blocks begin.
  int64_t begin(size_t node) const { return node ? ends_[node - 1] : 0; }
  /// body(node, block of the node) on the compute threads, as `parallel`.
  template <class Body>
  void run(const Body& body) const {
    parallel(total(), [&](int64_t block) {
      const auto node = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), block) - ends_.begin());
      body(node, block - begin(node));
    });
  }

 private:
  std::vector<int64_t> ends_;
};

/// The elements of several tensors, in blocks of `size`.
class ElementBlocks {
 public:
  explicit ElementBlocks(int64_t size) : size_(size) {}
  void add(const galley_operand& operand) {
    counts_.push_back(count(operand));
    blocks_.add((counts_.back() + size_ - 1) / size_);
  }
  /// body(tensor, first element, how many) on the compute threads.
  template <class Body>
  void run(const Body& body) const {
    blocks_.run([&](size_t i, int64_t block) {
      const int64_t first = block * size_;
      body(i, first, std::min(counts_[i] - first, size_));
    });
  }

 private:
  int64_t size_;
  std::vector<int64_t> counts_;
  Blocks blocks_;
};

}  // namespace galley::sdk
