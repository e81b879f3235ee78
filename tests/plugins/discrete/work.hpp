// The device "discrete": its memory (memory.hpp) and its queues (those of the emulated GPU, sdk/emulated/device/queues.hpp) as the host numbers them.
#pragma once

#include <map>

#include "../../../sdk/emulated/device/queues.hpp"
#include "memory.hpp"

namespace galley::discrete {

inline constexpr uint32_t kQueues = 4;

class Device {
 public:
  explicit Device(const galley_target& target) {
    for (uint32_t i = 0; i < std::min(target.n_memories, kClasses); ++i) links_[i] = *target.memories[i];
  }

  Memory memory;

  void launch(uint32_t queue, const galley_kernel& kernel, void* state) {
    queues_.put(queue, {kernel.name, [&kernel, state] {
                          galley_error error = GALLEY_ERROR_INIT;
                          galley_status status = GALLEY_OK;
                          const galley_status thrown = sdk::guard(&error, [&] { status = kernel.enqueue(state, nullptr, &error); });
                          if (thrown != GALLEY_OK) status = thrown;
                          if (status != GALLEY_OK) throw sdk::Failure(status, std::string("kernel '") + kernel.name + "': " + error.text);
                        }});
  }
  void copy(uint32_t queue, const galley_copy& copy) {
    const auto name = [](uint32_t m) { return m < kClasses ? std::string(kClassNames[m]) : std::string("process"); };
    queues_.put(queue,
                {"copy " + name(copy.from_memory) + " to " + name(copy.to_memory), [this, copy] { memory.copy(copy); }, seconds(copy)});
  }
  void record(uint32_t queue, uint32_t event) { last_[event] = queues_.record(queue); }
  void wait(uint32_t queue, uint32_t event) { queues_.wait(queue, last_[event]); }
  void mark(uint32_t queue, uint32_t mark) { marks_[mark] = queues_.record(queue); }
  double time(uint32_t mark) { return marks_[mark]->time - marks_[0]->time; }

  /// Does no more than it has to.
  void await(uint32_t event) {
    const Memory::Access access(memory);
    queues_.finish(last_[event]);
  }
  void synchronize() {
    const Memory::Access access(memory);
    queues_.finish_all();
  }

 private:
  double seconds(const galley_copy& copy) const {
    const bool in = copy.to_memory == kDevice;
    const uint32_t other = in ? copy.from_memory : copy.to_memory;
    if (other >= kClasses) return 0;
    return static_cast<double>(copy.bytes) / (in ? links_[other].in_bandwidth : links_[other].out_bandwidth);
  }

  std::array<galley_target_memory, kClasses> links_ = {};
  Queues queues_{kQueues};
  std::map<uint32_t, Stamp> last_, marks_;  ///< of each event and mark
};

}  // namespace galley::discrete
