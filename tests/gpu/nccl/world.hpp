// What nccl-exchange (exchange.cpp) runs exchanges on: the plugin "nccl" and an emulated GPU, opened as the host does, with memory in which
// operands lie as they like; and numbers that are the same wherever they are made.
#pragma once

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "galley/cpp/exchange.hpp"
#include "galley/cpp/half.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/host_table.hpp"
#include "host/plugins/loader.hpp"

namespace galley::test {

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// ---- Numbers ------------------------------------------------------------------------------------------------------------------

inline uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// A type that is added as the dtype is.
template <class T>
T made_of(uint64_t bits) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits);
  } else {
    const double number = (static_cast<double>(bits >> 12) * 0x1p-52 - .5) * (bits & 1 ? 0x1p8 : bits & 2 ? 0x1p-8 : 1.0);
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(number);
    } else {
      T out;
      sdk::from_float(static_cast<float>(number), out);
      return out;
    }
  }
}
template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_arithmetic_v<T>) {
    return a + b;
  } else {
    T out;
    sdk::from_float(sdk::to_float(a) + sdk::to_float(b), out);
    return out;
  }
}

/// Numbers whose sum depends on the order: of sizes from 2⁻⁸ to 2⁸.
template <class T>
std::vector<T> numbers(uint64_t seed, uint64_t of_case, int64_t rank, int64_t count) {
  const uint64_t key = mixed(mixed(seed * 1000003 + of_case) + static_cast<uint64_t>(rank));
  std::vector<T> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) out[i] = made_of<T>(mixed(key + i * 0x9E3779B97F4A7C15ull));
  return out;
}

// ---- The GPU and its exchanges --------------------------------------------------------------------------------------------------------

struct Operand {
  uint32_t dtype;
  std::vector<int64_t> shape;
  void* data;  ///< of the host: it is copied to the GPU, and back
};

class World {
 public:
  World(const std::string& binary, int64_t rank, int64_t ranks) : rank_(rank), ranks_(ranks) {
    const std::filesystem::path folders[] = {binary + "/plugins", binary + "/emulated"};
    plugins_ = Plugins::scan(folders);
    set_compute_threads(1);
    for (const auto& plugin : plugins_->all()) {
      if (plugin->manifest.id != "nccl") continue;
      const Status loaded = plugins_->load(*plugin);
      require(loaded.ok(), loaded.ok() ? "" : loaded.error().cause);
      require(plugin->library->ranks.size() == 1, "the plugin has no ranks");
      table_ = plugin->library->ranks[0];
    }
    require(table_ != nullptr, "there is no plugin 'nccl' in " + binary + "/plugins");
    device_ = plugins_->device("cuda-emulated").table;
    require(device_ != nullptr, "the emulated GPU is missing in " + binary + "/emulated");
    auto described = describe_target(*device_);
    require(described.ok(), "the emulated GPU cannot be described");
    target_ = *std::move(described);
    view_.emplace(target_);
  }
  ~World() {
    if (gpu_) {
      device_->release(gpu_, 0, arena_, kArena);
      device_->close(gpu_);
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  galley_status open(const std::string& meeting, const std::string& job, galley_error* error) {
    auto o = sdk::fresh<galley_ranks_options>();
    o.target = view_->get();
    o.rank = o.local_rank = rank_;
    o.ranks = o.local_ranks = ranks_;
    o.job = job.c_str();
    o.meeting = meeting.empty() ? nullptr : meeting.c_str();
    if (const galley_status status = table_->open(table_->self, &o, &handle_, error)) return status;
    auto of_device = sdk::fresh<galley_device_options>();
    of_device.target = view_->get();
    of_device.n_events = 1;
    of_device.index = static_cast<uint32_t>(rank_);  // where each process sees one GPU, all take that
    called("open", [&](galley_error* e) { return device_->open(device_->self, &of_device, &gpu_, e); });
    called("allocate", [&](galley_error* e) { return device_->allocate(gpu_, 0, kArena, &arena_, e); });
    return GALLEY_OK;
  }
  void close() { table_->close(handle_); }
  const galley_ranks& table() const { return *table_; }
  void* handle() const { return handle_; }
  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }

  struct Ran {
    galley_status status = GALLEY_OK;
    std::string text;
  };
  /// What a kernel of the plugin says of a node. `with`: the ranks that it is given. `captured`: it is captured, and replayed twice.
  Ran run(const std::string& op, const sdk::Attrs& attrs, const Operand& in, const Operand* out, bool adds, void* with,
          bool captured = false) {
    const galley_kernel* kernel = nullptr;
    for (const auto& found : plugins_->kernels(op, "cuda", target_.isa))
      if (found.plugin->manifest.id == "nccl") kernel = found.table;
    require(kernel != nullptr, op + " has no kernel of the plugin");
    char* free = static_cast<char*>(arena_);
    // Where no vector begins, with bytes around each operand that nobody has to touch.
    const auto take = [&](int64_t bytes) {
      char* const at = free + 256 + 16;
      free += (bytes + 1024) / 256 * 256 + 256;
      require(free < static_cast<char*>(arena_) + kArena, "the arena is too small for this test");
      return at;
    };
    galley_operand x = sdk::operand(nullptr, in.shape.data(), static_cast<uint32_t>(in.shape.size()), in.dtype, GALLEY_READ, "x"), y = x;
    if (out)
      y = sdk::operand(nullptr, out->shape.data(), static_cast<uint32_t>(out->shape.size()), out->dtype,
                       adds ? GALLEY_ACCUMULATE : GALLEY_WRITE, "y");
    const int64_t x_bytes = galley_operand_bytes(&x), y_bytes = out ? galley_operand_bytes(&y) : 0;
    x.data = take(x_bytes);
    if (out) y.data = take(y_bytes);
    const galley_operand *const inputs[] = {&x}, *const outputs[] = {&y};
    auto node = sdk::fresh<galley_node_view>();
    node.op = op.c_str();
    node.name = "h.0.exchange";
    node.inputs = inputs;
    node.n_inputs = 1;
    node.outputs = outputs;
    node.n_outputs = out ? 1 : 0;
    node.attrs = attrs.data();
    node.n_attrs = attrs.count();
    node.block = -1;
    galley_error error = GALLEY_ERROR_INIT;
    const auto failed = [&](galley_status status) { return Ran{status, error.text}; };
    const galley_node_view* const nodes[] = {&node};
    auto plan = sdk::fresh<galley_kernel_plan>();
    if (const auto status = kernel->query(kernel->self, nodes, 1, view_->get(), &plan, &error)) return failed(status);
    require(plan.workspace_bytes <= int64_t{64} << 20, op + " asks for " + std::to_string(plan.workspace_bytes) + " bytes");
    char* const workspace = free + 256;
    free = workspace + plan.workspace_bytes + 256;
    require(free < static_cast<char*>(arena_) + kArena, "the arena is too small for this test");
    const std::vector<char> junk(256, '\xA5');
    write(workspace + plan.workspace_bytes, junk.data(), 256);
    for (const galley_operand* operand : {&x, &y})
      if (operand == &x || out) write(static_cast<char*>(operand->data) + galley_operand_bytes(operand), junk.data(), 256);
    write(x.data, in.data, x_bytes);
    if (out) write(y.data, out->data, y_bytes);
    auto setup = sdk::fresh<galley_kernel_setup>();
    setup.target = view_->get();
    setup.queue = device_->queue_of(gpu_, 0);
    setup.workspace = plan.workspace_bytes ? workspace : nullptr;
    setup.workspace_bytes = plan.workspace_bytes;
    setup.ranks = with;
    void* state = nullptr;
    if (const auto status = kernel->prepare(kernel->self, nodes, 1, &setup, &state, &error)) return failed(status);
    galley_capture* capture = nullptr;
    if (captured) called("capture", [&](galley_error* e) { return device_->capture(gpu_, e); });
    const galley_status status = device_->launch(gpu_, 0, kernel, state, &error);
    if (captured) called("end_capture", [&](galley_error* e) { return device_->end_capture(gpu_, &capture, e); });
    if (status == GALLEY_OK) {
      for (int k = 0; captured && k < 2; ++k) called("replay", [&](galley_error* e) { return device_->replay(gpu_, capture, e); });
      called("synchronize", [&](galley_error* e) { return device_->synchronize(gpu_, e); });
    }
    if (capture) device_->discard(gpu_, capture);
    kernel->release(state);
    if (status != GALLEY_OK) return failed(status);
    read(in.data, x.data, x_bytes);
    if (out) read(out->data, y.data, y_bytes);
    std::vector<char> after(256);
    const auto untouched = [&](const void* at, const char* what) {
      read(after.data(), at, 256);
      require(after == junk, op + " wrote after its " + what);
    };
    untouched(static_cast<char*>(x.data) + x_bytes, "input");
    if (out) untouched(static_cast<char*>(y.data) + y_bytes, "output");
    untouched(workspace + plan.workspace_bytes, "workspace");
    return {};
  }

 private:
  static constexpr int64_t kArena = int64_t{400} << 20;

  template <class Call>
  static void called(const char* what, const Call& call) {
    galley_error error = GALLEY_ERROR_INIT;
    const galley_status status = call(&error);
    require(status == GALLEY_OK, std::string(what) + ": " + error.text);
  }
  void copy(galley_copy& copy, int64_t bytes) {
    if (bytes == 0) return;
    copy.bytes = bytes;
    called("copy", [&](galley_error* e) { return device_->copy(gpu_, 0, &copy, e); });
    called("synchronize", [&](galley_error* e) { return device_->synchronize(gpu_, e); });
  }
  void write(void* to, const void* from, int64_t bytes) {
    auto c = sdk::fresh<galley_copy>();
    c.from_memory = GALLEY_MEMORY_PROCESS;
    c.from_address = from;
    c.to_offset = static_cast<char*>(to) - static_cast<char*>(arena_);
    copy(c, bytes);
  }
  void read(void* to, const void* from, int64_t bytes) {
    auto c = sdk::fresh<galley_copy>();
    c.to_memory = GALLEY_MEMORY_PROCESS;
    c.to_address = to;
    c.from_offset = static_cast<const char*>(from) - static_cast<char*>(arena_);
    copy(c, bytes);
  }

  std::unique_ptr<Plugins> plugins_;
  Target target_;
  std::optional<TargetView> view_;
  const galley_ranks* table_ = nullptr;
  const galley_device* device_ = nullptr;
  void *handle_ = nullptr, *gpu_ = nullptr, *arena_ = nullptr;
  int64_t rank_, ranks_;
};

}  // namespace galley::test
