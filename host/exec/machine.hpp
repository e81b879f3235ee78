// An open device, the arenas of its memory classes, and how the host reaches the bytes in them.
//
// A tensor has one address for kernels, in its class's arena, and one for the host. They are the same where the host may touch the class
// directly, and differ where the host's side is a copy of each arena (HostCopies), which poison mode fills with junk between instructions.
// A class that the host cannot touch may have no addresses at all: bytes go there and come from there by copies through the program's
// staging, which lies where the host can reach it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "galley/device.h"
#include "host/base/result.hpp"
#include "host/plan/plan.hpp"
#include "host/plan/program.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/call.hpp"

namespace galley {

/// Whether the host's side of each arena is a copy of it. Whoever watches moves bytes between them.
enum class HostCopies : uint8_t { No, Yes };

/// The byte that junk is made of: every floating dtype reads it as a NaN, and arithmetic on x86 hands that very NaN on.
inline constexpr std::byte kJunk{0xff};

/// Used by one thread, except that host addresses may be read and written by another (the loader) while nothing enqueued touches them.
class Machine {
 public:
  /// Opens the device and allocates one arena for each class, of exactly Plan's bytes (none where those are 0); where `shift` is not 0,
  /// arenas that the host reaches lie so many bytes further on, which the alignment of every class divides. Plan, program, target and
  /// device outlive the machine. A class that the device does not have is exit code Recipe, memory that it cannot give DoesNotFit, anything
  /// else Plugin.
  static Result<std::unique_ptr<Machine>> open(const Program& program, const Plan& plan, const Target& target, const galley_device& device,
                                               HostCopies copies, uint32_t marks = 0, int64_t shift = 0);
  /// Waits for enqueued work, then gives everything back.
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Bytes that were asked of the device for a class.
  int64_t allocated(size_t memory) const { return arenas_[memory].bytes; }
  size_t classes() const { return arenas_.size(); }
  /// What the device's `open` returned.
  void* handle() const { return handle_; }
  /// Queue 0 as kernels see it; null: the device has no queues of its own.
  galley_queue* queue() const;

  /// Where kernels find byte `offset` of the tensor, which lies in a class that computes.
  std::byte* kernel_address(TensorId tensor, int64_t offset = 0) const;
  /// Where the host finds it; null when it cannot reach that class.
  std::byte* host_address(TensorId tensor, int64_t offset = 0) const;

  // Enqueue on the device; a status of its own or an exception becomes an error with exit code Plugin. Nothing is allocated unless it
  // fails. [stream-ordered]
  /// `whose`: the kernel's plugin, which is at fault when the launch fails.
  Status launch(uint32_t queue, const galley_kernel& kernel, void* state, const Caller& whose);
  Status copy(uint32_t queue, const galley_copy& copy);
  Status record(uint32_t queue, uint32_t event);
  Status wait(uint32_t queue, uint32_t event);
  /// Returns when what the event was last recorded after is done.
  Status await(uint32_t event);
  /// Returns when all queues are empty.
  Status synchronize();

  /// Notes the moment when a queue gets to this place. `marks` of open() says how many there are.
  Status mark(uint32_t queue, uint32_t mark);
  /// Seconds from mark 0 to this one; what was enqueued before is done.
  Result<double> time(uint32_t mark);
  /// What the system says of a memory class; nothing where it does not.
  Result<std::optional<MemoryUse>> usage(size_t memory);
  /// Names what is enqueued from now on for a profiler that is attached; null: ends that.
  void name_work(const char* name) const {
    if (device_.name_work) device_.name_work(handle_, name);
  }
  bool names_work() const { return device_.name_work != nullptr; }

  /// Whether the device can capture.
  bool captures() const { return device_.capture != nullptr; }
  /// Records what `work` enqueues instead of running it. What comes back is given back by discard().
  Result<galley_capture*> capture(const std::function<Status()>& work);
  Status replay(galley_capture* run);
  void discard(galley_capture* run);

  /// A copy between two places of the plan: where bytes [offset, offset + bytes) of the tensors lie. The sizes agree.
  galley_copy between(TensorId to, int64_t to_offset, TensorId from, int64_t from_offset, int64_t bytes) const;

  /// Copies bytes between tensors, after what is on queue 0; the source must stay as it is until synchronize().
  Status copy(TensorId to, int64_t to_offset, TensorId from, int64_t from_offset, int64_t bytes);

  /// Synchronizes and copies out.
  Status get(TensorId tensor, int64_t offset, std::span<std::byte> bytes);

  /// Synchronizes, then shows the whole tensor in order, in one piece where the host can reach it and else in pieces through the program's
  /// staging.
  Status show(TensorId tensor, const std::function<Status(std::span<const std::byte>)>& piece);
  Status show(TensorId tensor, int64_t offset, int64_t bytes, const std::function<Status(std::span<const std::byte>)>& piece);
  /// The other way: `piece` fills what it is given.
  Status fill(TensorId tensor, int64_t offset, int64_t bytes, const std::function<Status(std::span<std::byte>)>& piece);

  /// Bytes of a tensor as they are now, not through staging: for those who look at what a program does. Synchronous.
  Status peek(TensorId tensor, int64_t offset, std::span<std::byte> bytes);

  // For who watches: bytes of an arena itself, whatever class it is. Synchronous.
  Status read_arena(size_t memory, int64_t offset, std::span<std::byte> bytes);
  Status write_arena(size_t memory, int64_t offset, std::span<const std::byte> bytes);
  /// The arena itself where the host can reach it, else empty.
  std::span<const std::byte> arena(size_t memory) const;
  /// Poison mode: the host's side of a class.
  std::span<std::byte> copy_of(size_t memory) { return arenas_[memory].copy; }

 private:
  struct Arena {
    std::byte* data = nullptr;
    int64_t bytes = 0;
    int64_t shift = 0;  ///< from where the device has allocated it
    bool host_access = false;
    std::vector<std::byte> copy;  // HostCopies::Yes only
  };
  Machine(const Program& program, const Plan& plan, const galley_device& device, HostCopies copies);
  Status allocate(const Target& target, int64_t shift);
  const Arena& arena_of(TensorId tensor) const { return arenas_[program_.tensors[static_cast<size_t>(tensor)].memory]; }
  Result<std::span<std::byte>> staging() const;
  /// A copy of `bytes` with both sides still to be named.
  static galley_copy copy_of_bytes(int64_t bytes);
  galley_copy to_process(std::byte* to, size_t memory, int64_t offset, int64_t bytes) const;
  galley_copy from_process(size_t memory, int64_t offset, const std::byte* from, int64_t bytes) const;
  template <class Call>
  Status call(const char* doing, Call&& body) {
    return call(caller_, doing, body);
  }
  template <class Call>
  Status call(const Caller& whose, const char* doing, Call&& body);

  const Program& program_;
  const Plan& plan_;
  const galley_device& device_;
  HostCopies copies_;
  Caller caller_;
  void* handle_ = nullptr;
  std::vector<Arena> arenas_;
};

}  // namespace galley
