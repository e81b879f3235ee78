// The machine: an open device, the arenas of its memory classes, and access to the bytes in them, for the executor and the host.
//
// A tensor has one address for kernels, in its class's arena, and one for the host. They are the same if the host may touch the class
// directly, and differ if the host's side is a copy of each arena (HostCopies), which poison mode fills with junk between instructions.
// A class that the host cannot touch may have no addresses at all: bytes are copied to and from it through the program's staging, which the
// host can reach.
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

/// Says whether the host's side of each arena is a copy of it. Whoever watches then moves bytes between them.
enum class HostCopies : uint8_t { No, Yes };

/// The byte of junk: every floating dtype reads it as a NaN, and arithmetic on x86 passes that very NaN on.
inline constexpr std::byte kJunk{0xff};

/// Used by one thread, except that host addresses may be read and written by another (the loader) while nothing enqueued touches them.
class Machine {
 public:
  /// Opens the device and allocates one arena for each class, of exactly the plan's bytes (none if those are 0). If `shift` is not 0,
  /// arenas that the host reaches begin so many bytes later; every class's alignment must divide it. Plan, program, target and device
  /// outlive the machine. A class that the device does not have is exit code Recipe, memory that it cannot give DoesNotFit, anything else
  /// Plugin.
  static Result<std::unique_ptr<Machine>> open(const Program& program, const Plan& plan, const Target& target, const galley_device& device,
                                               HostCopies copies, uint32_t marks = 0, int64_t shift = 0, uint32_t index = 0);
  /// Waits for enqueued work, then frees everything.
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Returns the bytes that were asked of the device for a class.
  int64_t allocated(size_t memory) const { return arenas_[memory].bytes; }
  size_t classes() const { return arenas_.size(); }
  /// Returns what the device's `open` has returned.
  void* handle() const { return handle_; }
  /// Returns queue 0 as kernels see it; null if the device has no queues of its own.
  galley_queue* queue() const;

  /// Returns the address at which kernels find byte `offset` of the tensor, which must lie in a class that computes, or that the
  /// host reaches.
  std::byte* kernel_address(TensorId tensor, int64_t offset = 0) const;
  /// Returns the address at which the host finds it; null if the host cannot reach that class.
  std::byte* host_address(TensorId tensor, int64_t offset = 0) const;

  // These enqueue on the device. A bad status or an exception of the device becomes an error with exit code Plugin. They allocate nothing
  // unless they fail. [stream-ordered]
  /// `whose` is the kernel's plugin, which is at fault if the launch fails.
  Status launch(uint32_t queue, const galley_kernel& kernel, void* state, const Caller& whose);
  /// Runs a kernel for "cpu" after all that is enqueued; returns when it is done. Its operands lie where the host reaches them.
  Status run_on_host(const galley_kernel& kernel, void* state, const Caller& whose);
  Status copy(uint32_t queue, const galley_copy& copy);
  Status record(uint32_t queue, uint32_t event);
  Status wait(uint32_t queue, uint32_t event);
  /// Returns when the work before the event's last record is done.
  Status await(uint32_t event);
  /// Returns when all queues are empty.
  Status synchronize();

  /// Notes the time when a queue gets to this place. `marks` of open() says how many marks there are.
  Status mark(uint32_t queue, uint32_t mark);
  /// Returns the seconds from mark 0 to this one. The work before it must be done.
  Result<double> time(uint32_t mark);
  /// Returns the use of a memory class as the system sees it; nothing if the system does not say.
  Result<std::optional<MemoryUse>> usage(size_t memory);
  /// Names what is enqueued from now on, for a profiler that is attached; null ends that.
  void name_work(const char* name) const {
    if (device_.name_work) device_.name_work(handle_, name);
  }
  bool names_work() const { return device_.name_work != nullptr; }

  /// Returns whether the device can capture.
  bool captures() const { return device_.capture != nullptr; }
  /// Records what `work` enqueues instead of running it. discard() frees the result.
  Result<galley_capture*> capture(const std::function<Status()>& work);
  Status replay(galley_capture* run);
  void discard(galley_capture* run);

  /// Returns a copy between bytes [offset, offset + bytes) of two tensors, where the plan has put them.
  galley_copy between(TensorId to, int64_t to_offset, TensorId from, int64_t from_offset, int64_t bytes) const;

  /// Copies bytes between tensors, after what is on queue 0; the source must stay as it is until synchronize().
  Status copy(TensorId to, int64_t to_offset, TensorId from, int64_t from_offset, int64_t bytes);

  /// Synchronizes and copies bytes of a tensor to the caller.
  Status get(TensorId tensor, int64_t offset, std::span<std::byte> bytes);

  /// Synchronizes, then shows the whole tensor in order: in one piece if the host can reach it, else in pieces through the program's
  /// staging.
  Status show(TensorId tensor, const std::function<Status(std::span<const std::byte>)>& piece);
  Status show(TensorId tensor, int64_t offset, int64_t bytes, const std::function<Status(std::span<const std::byte>)>& piece);
  /// Does the opposite: `piece` fills the bytes that it is given.
  Status fill(TensorId tensor, int64_t offset, int64_t bytes, const std::function<Status(std::span<std::byte>)>& piece);

  // For those who watch: these read and write bytes of an arena of any class. Synchronous.
  Status read_arena(size_t memory, int64_t offset, std::span<std::byte> bytes) {
    return exchange(memory, offset, bytes.size(), bytes.data(), nullptr);
  }
  Status write_arena(size_t memory, int64_t offset, std::span<const std::byte> bytes) {
    return exchange(memory, offset, bytes.size(), nullptr, bytes.data());
  }
  /// Returns the arena itself if the host can reach it, else nothing.
  std::span<const std::byte> arena(size_t memory) const;
  /// Returns the host's side of a class, for poison mode.
  std::span<std::byte> copy_of(size_t memory) { return arenas_[memory].copy; }

 private:
  struct Arena {
    std::byte* data = nullptr;
    int64_t bytes = 0;
    int64_t shift = 0;  ///< distance from the address that the device has returned
    bool host_access = false;
    std::vector<std::byte> copy;  // HostCopies::Yes only
  };
  Machine(const Program& program, const Plan& plan, const galley_device& device, HostCopies copies);
  Status allocate(const Target& target, int64_t shift);
  /// Copies bytes of an arena to an address of this process, or from one; the other address is null.
  Status exchange(size_t memory, int64_t offset, size_t bytes, void* to, const void* from);
  const Arena& arena_of(TensorId tensor) const { return arenas_[program_.tensors[static_cast<size_t>(tensor)].memory]; }
  /// Calls piece(done, staging) until so many bytes have gone through the program's staging.
  Status in_pieces(int64_t bytes, const std::function<Status(int64_t, std::span<std::byte>)>& piece) const;
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
