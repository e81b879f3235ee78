// The C++ side of the SDK: kernels, formats, registration and the plugin's entry. Exceptions do not cross the C ABI. Header-only; of
// Galley, it uses only the C headers.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <type_traits>
#include <vector>

#include "galley/cpp/known.hpp"
#include "galley/cpp/op.hpp"

namespace galley::sdk {

// ---- Kernels ------------------------------------------------------------------------------------------------------------------

/// The host's table, set by `open`.
inline const galley_host*& host() {
  static const galley_host* h = nullptr;
  return h;
}

/// Runs body(block) for each block in [0, blocks) on the compute threads. If a body throws, the remaining blocks are skipped, and the first
/// exception is rethrown here.
template <class Body>
void parallel(int64_t blocks, const Body& body) {
  struct Context {
    const Body& body;
    std::atomic<bool> failed;
    std::exception_ptr first;
  } context{body, false, nullptr};
  host()->parallel(
      host()->context, blocks,
      [](void* c, int64_t block) {
        auto& shared = *static_cast<Context*>(c);
        try {
          if (!shared.failed.load(std::memory_order_relaxed)) shared.body(block);
        } catch (...) {
          if (!shared.failed.exchange(true)) shared.first = std::current_exception();
        }
      },
      &context);
  if (context.first) std::rethrow_exception(context.first);
}

/// Returns a service of the host; null if there is none.
inline const void* service(const char* id) {
  return GALLEY_HAS(host(), galley_host, service) ? host()->service(host()->context, id) : nullptr;
}

/// Whether a function was given as a template argument. Compares types, because compilers disagree about comparing a function's address
/// with null.
template <class F, F function>
inline constexpr bool kGiven = !std::is_same_v<std::integral_constant<F, function>, std::integral_constant<F, nullptr>>;

namespace detail {

/// Runs a kernel's state: `run(queue)` where it has that, else `run()`.
template <class T>
auto run_kernel(T& state, galley_queue* queue, int) -> decltype(state.run(queue)) {
  return state.run(queue);
}
template <class T>
void run_kernel(T& state, galley_queue*, long) {
  state.run();
}

/// The table of a kernel that takes one node at a time: `T::query(Node, target, plan)`, `T(Node, setup)`, `run()` or `run(queue)`.
template <class T>
struct KernelTable {
  static galley_status query(void*, const galley_node_view* const* nodes, uint32_t n, const galley_target* target, galley_kernel_plan* out,
                             galley_error* error) noexcept {
    return guard(error, [&] {
      if (n != 1) unsupported("one node at a time");
      galley_kernel_plan plan = read(out, GALLEY_UNSUPPORTED);
      T::query(Node(nodes[0], GALLEY_UNSUPPORTED), read(target, GALLEY_UNSUPPORTED), plan);
      galley_assign(out, &plan);
    });
  }
  static galley_status prepare(void*, const galley_node_view* const* nodes, uint32_t, const galley_kernel_setup* setup, void** state,
                               galley_error* error) noexcept {
    return guard(error, [&] { *state = new T(Node(nodes[0]), read(setup)); });
  }
  static galley_status enqueue(void* state, galley_queue* queue, galley_error* error) noexcept {
    return guard(error, [&] { run_kernel(*static_cast<T*>(state), queue, 0); });
  }
  static void release(void* state) noexcept { delete static_cast<T*>(state); }

  static galley_kernel table(const char* name, const char* op, const char* device, uint64_t flags) {
    galley_kernel k = fresh<galley_kernel>();
    k.name = name;
    k.op = op;
    k.device = device;
    k.query = query;
    k.prepare = prepare;
    k.enqueue = enqueue;
    k.release = release;
    k.flags = flags;
    return k;
  }
};

template <void (*Run)(const Node&, void*), bool (*Supports)(const Node&), int64_t (*Workspace)(const Node&, const galley_target&),
          int64_t Priority>
class PlainKernel {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if constexpr (kGiven<bool (*)(const Node&), Supports>) {
      if (!Supports(node)) unsupported("dtypes or shapes");
    }
    if constexpr (kGiven<int64_t (*)(const Node&, const galley_target&), Workspace>) plan.workspace_bytes = Workspace(node, target);
    plan.priority = Priority;
  }
  PlainKernel(const Node& node, const galley_kernel_setup& setup) : node_(node), workspace_(setup.workspace) {}
  void run() const { Run(node_, workspace_); }

 private:
  Node node_;
  void* workspace_;
};

}  // namespace detail

/// A kernel made of plain functions: kernel<run>("gelu.cpu", "gelu"). run(node, workspace) computes. `Supports` checks dtypes and shapes.
/// `Workspace` returns the bytes of workspace that it needs.
template <void (*Run)(const Node&, void*), bool (*Supports)(const Node&) = nullptr,
          int64_t (*Workspace)(const Node&, const galley_target&) = nullptr, int64_t Priority = 0>
galley_kernel kernel(const char* name, const char* op, const char* device = GALLEY_KERNEL_DEVICE, uint64_t flags = 0) {
  return detail::KernelTable<detail::PlainKernel<Run, Supports, Workspace, Priority>>::table(name, op, device, flags);
}

/// A kernel with a state: kernel_of<OneDnn>("linear.onednn", "linear"). T::query(node, target, plan) checks the node and sets workspace,
/// constants and priority. T(node, setup) is constructed when the addresses are final. run(), or run(queue), enqueues.
template <class T>
galley_kernel kernel_of(const char* name, const char* op, const char* device = GALLEY_KERNEL_DEVICE, uint64_t flags = 0) {
  return detail::KernelTable<T>::table(name, op, device, flags);
}

/// A format: format<components>("bf16", "bf16_pack", "bf16_unpack"). components(shape, options, out) adds the components in order.
/// `flags`: GALLEY_FORMAT_….
class Components {
 public:
  Components(galley_component* const* out, uint32_t* n) : out_(out), n_(n) {}
  /// `numbers`: how many numbers of the tensor one element represents; 0: the component belongs to the tensor as a whole. `file_name`: see
  /// galley_component.
  void add(const char* suffix, uint32_t dtype, const std::vector<int64_t>& shape, int64_t numbers, const char* file_name = nullptr) {
    if (*n_ == GALLEY_MAX_COMPONENTS)
      throw Failure(GALLEY_FAILED, "component '" + std::string(suffix) + "' is one more than the " + std::to_string(GALLEY_MAX_COMPONENTS) +
                                       " that a format may have");
    if (shape.size() > GALLEY_MAX_RANK)
      throw Failure(GALLEY_FAILED, "component '" + std::string(suffix) + "' has rank " + std::to_string(shape.size()));
    galley_component c = fresh<galley_component>();
    c.suffix = suffix;
    c.dtype = dtype;
    c.rank = static_cast<uint32_t>(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) c.extents[i] = shape[i];
    c.numbers = numbers;
    c.file_name = file_name;
    galley_assign(out_[*n_], &c);
    ++*n_;
  }

 private:
  galley_component* const* out_;
  uint32_t* n_;
};
using FormatOptions = std::vector<const galley_attr*>;
template <void (*Fill)(const std::vector<int64_t>& shape, const FormatOptions&, Components&)>
galley_format format(const char* name, const char* pack_op, const char* unpack_op, uint64_t flags = 0) {
  galley_format f = fresh<galley_format>();
  f.name = name;
  f.pack_op = pack_op;
  f.unpack_op = unpack_op;
  f.flags = flags;
  f.components = [](void*, const int64_t* shape, uint32_t rank, const galley_attr* const* attrs, uint32_t n_attrs,
                    galley_component* const* out, uint32_t* n, galley_error* error) noexcept {
    return guard(error, [&] {
      for (uint32_t i = 0; i < n_attrs; ++i) understand(attrs[i]);
      uint32_t made = 0;
      Components components(out, &made);
      Fill({shape, shape + rank}, {attrs, attrs + n_attrs}, components);
      *n = made;
    });
  };
  return f;
}

// ---- Registration and the entry -----------------------------------------------------------------------------------------

/// What a kernel knows of an op (galley_known_op), with its own storage.
class KnownOp {
 public:
  KnownOp(const char* op, uint32_t n_inputs, uint32_t n_outputs, std::vector<std::string> attrs) : attrs_(std::move(attrs)) {
    table_.op = op;
    table_.n_inputs = n_inputs;
    table_.n_outputs = n_outputs;
  }
  /// Valid as long as this object is where it is.
  const galley_known_op* table() {
    pointers_.clear();
    for (const std::string& name : attrs_) pointers_.push_back(name.c_str());
    table_.attrs = pointers_.data();
    table_.n_attrs = static_cast<uint32_t>(pointers_.size());
    return &table_;
  }

 private:
  std::vector<std::string> attrs_;
  std::vector<const char*> pointers_;
  galley_known_op table_ = fresh<galley_known_op>();
};

struct Registry {
  std::vector<const galley_strategy*> strategies;
  std::vector<const galley_op*> ops;
  std::vector<const galley_kernel*> kernels;
  std::vector<const galley_format*> formats;
  std::vector<const galley_device*> devices;
  std::vector<const galley_codec*> codecs;
  std::vector<const galley_source*> sources;
  const galley_ranks* ranks = nullptr;
  std::deque<galley_kernel> kernel_tables;
  std::deque<galley_format> format_tables;
  std::deque<galley_codec> codec_tables;
  std::deque<KnownOp> known;
  std::deque<std::vector<const galley_known_op*>> known_tables;
  void (*close)() = nullptr;
};
inline Registry& registry() {
  static Registry r;
  return r;
}
/// Registers an op. At namespace scope: static const bool registered = add(op);
inline bool add(Op& op) {
  registry().ops.push_back(op.table());
  return true;
}
inline bool add(const galley_op* op) {
  registry().ops.push_back(op);
  return true;
}
/// A kernel, and what it knows of ops that are neither its own plugin's nor Galley's:
///   add(kernel<run>("mine", "example.op"), {{"example.op", 2, 1, {"scale"}}})
/// What it knows of Galley's ops is what this SDK knows of them.
inline bool add(const galley_kernel& k, std::initializer_list<KnownOp> known = {}) {
  Registry& r = registry();
  galley_kernel& kernel = r.kernel_tables.emplace_back(k);
  auto& tables = r.known_tables.emplace_back();
  for (const KnownOp& op : known) tables.push_back(r.known.emplace_back(op).table());
  detail::each_part(k.op, '>', [&](const std::string& link) {
    for (const detail::PublicOp& op : detail::kPublicOps) {
      if (link != op.name) continue;
      std::vector<std::string> attrs;
      detail::each_part(op.attrs, ' ', [&](const std::string& name) { attrs.push_back(name); });
      tables.push_back(r.known.emplace_back(op.name, op.n_inputs, op.n_outputs, std::move(attrs)).table());
    }
  });
  kernel.knows = tables.data();
  kernel.n_knows = static_cast<uint32_t>(tables.size());
  r.kernels.push_back(&kernel);
  return true;
}
inline bool add(const galley_format* f) {
  registry().formats.push_back(f);
  return true;
}
inline bool add(const galley_format& f) { return add(&registry().format_tables.emplace_back(f)); }
inline bool add(const galley_codec& c) {
  registry().codecs.push_back(&registry().codec_tables.emplace_back(c));
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

inline bool add(const galley_source* s) {
  registry().sources.push_back(s);
  return true;
}

/// How the processes of a run find each other: a plugin has at most one.
inline bool add(const galley_ranks* r) {
  registry().ranks = r;
  return true;
}

/// What is called once at the end of the process (galley_entry.close).
inline bool at_close(void (*close)()) {
  registry().close = close;
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
  entry.codecs = r.codecs.data();
  entry.n_codecs = static_cast<uint32_t>(r.codecs.size());
  entry.sources = r.sources.data();
  entry.n_sources = static_cast<uint32_t>(r.sources.size());
  entry.close = r.close;
  if (r.ranks)
    entry.get = [](const char* id) noexcept -> const void* { return galley_same_text(id, GALLEY_RANKS) ? registry().ranks : nullptr; };
}

/// GALLEY_PLUGIN("adamw", "1.0.0") defines the library's entry. Use it once in the plugin's library and once in each of its kernel
/// libraries. The plugin then needs the version of this SDK. GALLEY_PLUGIN_NEEDS("adamw", "1.0.0", 1, 2) needs ABI 1.2 and runs on what has
/// that, though a later SDK has built it: then the manifest says so too.
#define GALLEY_PLUGIN(id_, version_) GALLEY_PLUGIN_NEEDS(id_, version_, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR)
#define GALLEY_PLUGIN_NEEDS(id_, version_, major_, minor_)                                \
  extern "C" GALLEY_PUBLIC galley_entry galley_entry_v1;                                  \
  static galley_status galley_plugin_open(const galley_host* h, galley_error*) noexcept { \
    galley::sdk::publish(galley_entry_v1, h);                                             \
    return GALLEY_OK;                                                                     \
  }                                                                                       \
  galley_entry galley_entry_v1 = {sizeof(galley_entry),                                   \
                                  1,                                                      \
                                  major_,                                                 \
                                  minor_,                                                 \
                                  id_,                                                    \
                                  version_,                                               \
                                  galley_plugin_open,                                     \
                                  nullptr,                                                \
                                  nullptr,                                                \
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
                                  0,                                                      \
                                  0,                                                      \
                                  0,                                                      \
                                  0,                                                      \
                                  nullptr,                                                \
                                  nullptr}

}  // namespace galley::sdk
