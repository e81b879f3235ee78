// The C++ side of the SDK: guards that keep exceptions on this side of the C tables, and short words for what a plugin does. Header-only; it uses the C
// headers and nothing else of Galley's.
#pragma once

#include <deque>
#include <type_traits>
#include <vector>

#include "galley/cpp/op.hpp"

namespace galley::sdk {

// ---- Kernels ------------------------------------------------------------------------------------------------------------------

/// The host, set by `open`. Kernels divide work with it: parallel(blocks, [&](int64_t block) { … }).
inline const galley_host*& host() {
  static const galley_host* h = nullptr;
  return h;
}

template <class Body>
void parallel(int64_t blocks, const Body& body) {
  host()->parallel(
      blocks, [](void* context, int64_t block) { (*static_cast<const Body*>(context))(block); }, const_cast<Body*>(&body));
}

/// Whether a function was given as a template argument. By types: compilers do not agree on comparing a function's address with null.
template <class F, F function>
inline constexpr bool kGiven = !std::is_same_v<std::integral_constant<F, function>, std::integral_constant<F, nullptr>>;

/// The simplest kernel: a function of a node with addresses. `Supports` looks at dtypes and shapes; bytes of workspace come from `Workspace` (may be null).
struct Prepared {
  const galley_node_view* node;
  void* workspace;
};
template <void (*Run)(const Node&, void* workspace), bool (*Supports)(const Node&), int64_t (*Workspace)(const Node&, const galley_target&)>
struct KernelOf {
  static galley_status query(const galley_node_view* const* nodes, uint32_t n, const galley_target* target, galley_kernel_plan* out,
                             galley_error* error) noexcept {
    return guard(error, [&] {
      if (n != 1) unsupported("one node at a time");
      if constexpr (kGiven<bool (*)(const Node&), Supports>) {
        if (!Supports(Node(nodes[0]))) unsupported("dtypes or shapes");
      }
      if constexpr (kGiven<int64_t (*)(const Node&, const galley_target&), Workspace>) out->workspace_bytes = Workspace(Node(nodes[0]), *target);
    });
  }
  static galley_status prepare(const galley_node_view* const* nodes, uint32_t, const galley_target*, void* workspace, void** state,
                               galley_error* error) noexcept {
    return guard(error, [&] { *state = new Prepared{nodes[0], workspace}; });
  }
  static galley_status enqueue(void* state, galley_queue*, galley_error* error) noexcept {
    return guard(error, [&] {
      const auto* p = static_cast<Prepared*>(state);
      Run(Node(p->node), p->workspace);
    });
  }
  static void release(void* state) noexcept { delete static_cast<Prepared*>(state); }
};

/// A table for a kernel made of plain functions: kernel<run>("gelu.cpu", "gelu", "cpu").
template <void (*Run)(const Node&, void*), bool (*Supports)(const Node&) = nullptr,
          int64_t (*Workspace)(const Node&, const galley_target&) = nullptr>
galley_kernel kernel(const char* name, const char* op, const char* device = "cpu") {
  using K = KernelOf<Run, Supports, Workspace>;
  galley_kernel k = {};
  k.size = sizeof k;
  k.revision = 1;
  k.name = name;
  k.op = op;
  k.device = device;
  k.query = K::query;
  k.prepare = K::prepare;
  k.enqueue = K::enqueue;
  k.release = K::release;
  return k;
}

/// A kernel with a state of its own: T::query(node, target, plan) checks and asks for workspace, T(node, target, workspace) builds it once the addresses are
/// final, run() enqueues.
template <class T>
struct KernelWithState {
  static galley_status query(const galley_node_view* const* nodes, uint32_t n, const galley_target* target, galley_kernel_plan* out,
                             galley_error* error) noexcept {
    return guard(error, [&] {
      if (n != 1) unsupported("one node at a time");
      T::query(Node(nodes[0]), *target, *out);
    });
  }
  static galley_status prepare(const galley_node_view* const* nodes, uint32_t, const galley_target* target, void* workspace, void** state,
                               galley_error* error) noexcept {
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
  k.size = sizeof k;
  k.revision = 1;
  k.name = name;
  k.op = op;
  k.device = device;
  k.query = K::query;
  k.prepare = K::prepare;
  k.enqueue = K::enqueue;
  k.release = K::release;
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
inline bool add(Op& op) {
  registry().ops.push_back(op.table());
  return true;
}
inline bool add(const galley_op* op) {
  registry().ops.push_back(op);
  return true;
}
inline bool add(const galley_kernel& k) {
  registry().kernels.push_back(&registry().kernel_tables.emplace_back(k));
  return true;
}
inline bool add(const galley_format* f) {
  registry().formats.push_back(f);
  return true;
}
inline bool add(const galley_device* d) {
  registry().devices.push_back(d);
  return true;
}
inline bool add(const galley_strategy* s) {
  registry().strategies.push_back(s);
  return true;
}

/// Fills the entry's tables from the registry; call it from `open`.
inline void publish(galley_entry& entry, const galley_host* h) {
  host() = h;
  Registry& r = registry();
  entry.strategies = r.strategies.data();
  entry.n_strategies = static_cast<uint32_t>(r.strategies.size());
  entry.ops = r.ops.data();
  entry.n_ops = static_cast<uint32_t>(r.ops.size());
  entry.kernels = r.kernels.data();
  entry.n_kernels = static_cast<uint32_t>(r.kernels.size());
  entry.formats = r.formats.data();
  entry.n_formats = static_cast<uint32_t>(r.formats.size());
  entry.devices = r.devices.data();
  entry.n_devices = static_cast<uint32_t>(r.devices.size());
}

/// GALLEY_PLUGIN("adamw", "1.0.0"): the library's entry, once in a plugin (and once in each of its kernel libraries).
#define GALLEY_PLUGIN(id_, version_)                                                      \
  extern "C" GALLEY_EXPORT galley_entry galley_entry_v1;                                  \
  static galley_status galley_plugin_open(const galley_host* h, galley_error*) noexcept { \
    galley::sdk::publish(galley_entry_v1, h);                                             \
    return GALLEY_OK;                                                                     \
  }                                                                                       \
  galley_entry galley_entry_v1 = {sizeof(galley_entry),                                   \
                                  1,                                                      \
                                  GALLEY_ABI_MAJOR,                                       \
                                  GALLEY_ABI_MINOR,                                       \
                                  id_,                                                    \
                                  version_,                                               \
                                  galley_plugin_open,                                     \
                                  nullptr,                                                \
                                  nullptr,                                                \
                                  nullptr,                                                \
                                  nullptr,                                                \
                                  nullptr,                                                \
                                  0,                                                      \
                                  0,                                                      \
                                  0,                                                      \
                                  0,                                                      \
                                  0,                                                      \
                                  0}

}  // namespace galley::sdk
