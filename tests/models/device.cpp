#include "tests/models/device.hpp"

#include <cstdio>
#include <cstdlib>
#include <deque>

#include "galley/cpp/node.hpp"
#include "tests/models/harness.hpp"

namespace galley::test {
namespace {

constexpr int64_t kArena = int64_t{512} << 20, kAlignment = 256;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "GALLEY_TEST_DEVICE: %s\n", why.c_str());
  std::_Exit(1);  // destructors would wait for a device that is lost
}

}  // namespace

/// Nodes whose operands lie in the device's memory, with the components of those in formats.
struct TestDevice::Moved {
  explicit Moved(const TestDevice& device) : device_(device) {}
  void add(const galley_node_view& node) {
    galley_node_view& view = views_.emplace_back(node);
    view.inputs = list(node.inputs, node.n_inputs);
    view.outputs = list(node.outputs, node.n_outputs);
    nodes.push_back(&view);
  }
  std::vector<const galley_node_view*> nodes;

 private:
  const galley_operand* const* list(const galley_operand* const* from, uint32_t n) {
    auto& out = lists_.emplace_back();
    for (uint32_t i = 0; i < n; ++i) out.push_back(from[i] ? moved(*from[i]) : nullptr);
    return out.data();
  }
  const galley_operand* moved(const galley_operand& from) {
    galley_operand& out = operands_.emplace_back(from);
    if (from.data) out.data = device_.there(from.data);
    if (from.n_components) out.components = list(from.components, from.n_components);
    return &out;
  }
  const TestDevice& device_;
  std::deque<galley_operand> operands_;
  std::deque<std::vector<const galley_operand*>> lists_;
  std::deque<galley_node_view> views_;
};

TestDevice* TestDevice::get() {
  static const std::unique_ptr<TestDevice> device = []() -> std::unique_ptr<TestDevice> {
    const char* file = std::getenv("GALLEY_TEST_DEVICE");
    if (!file) return nullptr;
    const galley_entry* entry = open_library(file);
    if (entry->n_devices != 1) give_up(std::string(file) + " has no device");
    return std::unique_ptr<TestDevice>(new TestDevice(*entry->devices[0]));
  }();
  return device.get();
}

TestDevice::TestDevice(const galley_device& device) : device_(device), target_(sdk::fresh<galley_target>()) {
  galley_error error = GALLEY_ERROR_INIT;
  if (device.describe(device.self, &target_, &error) != GALLEY_OK) give_up(error.text);
  auto options = sdk::fresh<galley_device_options>();
  options.target = &target_;
  void* arena = nullptr;
  if (device.open(device.self, &options, &handle_, &error) != GALLEY_OK || device.allocate(handle_, 0, kArena, &arena, &error) != GALLEY_OK)
    give_up(error.text);
  arena_ = static_cast<std::byte*>(arena);
}

void* TestDevice::there(const void* here) const {
  const auto* at = static_cast<const std::byte*>(here);
  for (const Copy& copy : copies_)
    if (at >= copy.here.begin && at < copy.here.begin + copy.here.bytes) return arena_ + copy.offset + (at - copy.here.begin);
  return nullptr;
}

galley_status TestDevice::move(bool in, galley_error* error) const {
  for (const Copy& c : copies_) {
    auto copy = sdk::fresh<galley_copy>();
    copy.bytes = c.here.bytes;
    copy.to_memory = in ? 0 : GALLEY_MEMORY_PROCESS;
    copy.from_memory = in ? GALLEY_MEMORY_PROCESS : 0;
    (in ? copy.to_offset : copy.from_offset) = c.offset;
    if (in) copy.from_address = c.here.begin;
    else copy.to_address = c.here.begin;
    if (const galley_status status = device_.copy(handle_, 0, &copy, error); status != GALLEY_OK) return status;
  }
  return device_.synchronize(handle_, error);
}

galley_status TestDevice::launch(const galley_kernel& kernel, const std::vector<const galley_node_view*>& nodes, galley_kernel_setup setup,
                                 const std::vector<Extent>& memory, int times, galley_error* error) {
  copies_.clear();
  int64_t used = 0;
  for (const Extent& extent : memory) {
    // As far from an aligned address as here.
    used = (used + kAlignment - 1) / kAlignment * kAlignment + static_cast<int64_t>(reinterpret_cast<uintptr_t>(extent.begin) % 64);
    copies_.push_back({extent, used});
    used += extent.bytes;
  }
  if (used > kArena) give_up("the arena is too small for " + std::to_string(used) + " bytes");
  Moved moved(*this);
  for (const galley_node_view* node : nodes) moved.add(*node);
  setup.queue = device_.queue_of ? device_.queue_of(handle_, 0) : nullptr;
  if (setup.workspace) setup.workspace = there(setup.workspace);
  if (setup.constants) setup.constants = there(setup.constants);

  galley_status status = move(true, error);
  void* state = nullptr;
  if (status == GALLEY_OK)
    status = kernel.prepare(kernel.self, moved.nodes.data(), static_cast<uint32_t>(moved.nodes.size()), &setup, &state, error);
  if (status != GALLEY_OK) return status;
  for (int k = 0; k < times && status == GALLEY_OK; ++k) status = device_.launch(handle_, 0, &kernel, state, error);
  // What a GPU did wrong stays wrong for all that follows.
  if (status == GALLEY_OK && device_.synchronize(handle_, error) != GALLEY_OK) give_up(std::string(kernel.name) + ": " + error->text);
  kernel.release(state);
  return status == GALLEY_OK ? move(false, error) : status;
}

}  // namespace galley::test
