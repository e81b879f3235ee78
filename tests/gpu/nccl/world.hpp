// What nccl-exchange (exchange.cpp) runs exchanges on: the plugin "nccl" and an emulated GPU, opened as the host does, with memory in which
// operands lie as they like.
#pragma once

#include <optional>

#include "tests/exchanges.hpp"

namespace galley::test {

class Gpu final : public World {
 public:
  Gpu(const std::string& binary, int64_t rank, int64_t ranks) : World("nccl", {binary + "/plugins", binary + "/emulated"}, rank, ranks) {
    set_compute_threads(1);
    device_ = plugins_->device("cuda-emulated").table;
    require(device_ != nullptr, "the emulated GPU is missing in " + binary + "/emulated");
    auto described = describe_target(*device_);
    require(described.ok(), "the emulated GPU cannot be described");
    target_ = *std::move(described);
    view_.emplace(target_);
  }
  ~Gpu() override {
    if (gpu_) {
      device_->release(gpu_, 0, arena_, kArena);
      device_->close(gpu_);
    }
  }

  galley_status open(const std::string& meeting, const std::string& job, galley_error* error) {
    if (const galley_status status = open_ranks(meeting, job, error)) return status;
    auto of_device = sdk::fresh<galley_device_options>();
    of_device.target = view_->get();
    of_device.n_events = 1;
    of_device.index = static_cast<uint32_t>(rank());  // where each process sees one GPU, all take that
    called("open", [&](galley_error* e) { return device_->open(device_->self, &of_device, &gpu_, e); });
    called("allocate", [&](galley_error* e) { return device_->allocate(gpu_, 0, kArena, &arena_, e); });
    return GALLEY_OK;
  }
  void close() { table().close(handle_); }

  Ran run(const std::string& op, const sdk::Attrs& attrs, const Operand& in, const Operand* out, bool adds, void* with,
          int times) override {
    const galley_kernel* const kernel = &kernel_of(op, "cuda");
    const bool captured = times > 1;
    char* free = static_cast<char*>(arena_);
    // Where no vector begins, with bytes around each operand that nobody has to touch.
    const auto take = [&](int64_t bytes) {
      char* const at = free + 256 + 16;
      free += (bytes + 1024) / 256 * 256 + 256;
      require(free < static_cast<char*>(arena_) + kArena, "the arena is too small for this test");
      return at;
    };
    ExchangeNode of(op, attrs, in, out, adds);
    galley_operand &x = of.x, &y = of.y;
    const int64_t x_bytes = galley_operand_bytes(&x), y_bytes = out ? galley_operand_bytes(&y) : 0;
    x.data = take(x_bytes);
    if (out) y.data = take(y_bytes);
    galley_error error = GALLEY_ERROR_INIT;
    const auto failed = [&](galley_status status) { return Ran{status, error.text}; };
    auto plan = sdk::fresh<galley_kernel_plan>();
    if (const auto status = kernel->query(kernel->self, of.nodes, 1, view_->get(), &plan, &error)) return failed(status);
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
    if (const auto status = kernel->prepare(kernel->self, of.nodes, 1, &setup, &state, &error)) return failed(status);
    galley_capture* capture = nullptr;
    if (captured) called("capture", [&](galley_error* e) { return device_->capture(gpu_, e); });
    const galley_status status = device_->launch(gpu_, 0, kernel, state, &error);
    if (captured) called("end_capture", [&](galley_error* e) { return device_->end_capture(gpu_, &capture, e); });
    if (status == GALLEY_OK) {
      for (int k = 0; captured && k < times; ++k) called("replay", [&](galley_error* e) { return device_->replay(gpu_, capture, e); });
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
  static constexpr int64_t kArena = int64_t{128} << 20;

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

  std::optional<TargetView> view_;
  const galley_device* device_ = nullptr;
  void *gpu_ = nullptr, *arena_ = nullptr;
};

}  // namespace galley::test
