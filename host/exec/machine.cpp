#include "host/exec/machine.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "host/plugins/abi.hpp"
#include "host/plugins/library.hpp"

namespace galley {

namespace {

/// Returns how many events the program has.
uint32_t events_of(const Program& program) {
  uint32_t most = 0;
  for (const Segment& segment : program.segments)
    for (const Instruction& i : segment.code) most = std::max(most, i.event);
  return most;
}

}  // namespace

Machine::Machine(const Program& program, const Plan& plan, const galley_device& device, HostCopies copies)
    : program_(program), plan_(plan), device_(device), copies_(copies), caller_(caller_of(&device, device.kind)) {}

template <class Call>
Status Machine::call(const Caller& whose, const char* doing, Call&& body) {
  Status status = call_plugin(whose, doing, body, Phase::Run);
  if (status.ok()) return status;
  Error error = std::move(status).error();
  error.cause = "device '" + std::string(device_.kind) + "': " + error.cause;
  return error;
}

Result<std::unique_ptr<Machine>> Machine::open(const Program& program, const Plan& plan, const Target& target, const galley_device& device,
                                               HostCopies copies, uint32_t marks, int64_t shift, uint32_t index) {
  if (marks > 0 && !device.mark)
    return recipe_error("device '" + std::string(device.kind) + "' does not tell the time of its work", "leave out --profile and --trace");
  std::unique_ptr<Machine> machine(new Machine(program, plan, device, copies));
  const TargetView view(target);
  auto options = new_struct<galley_device_options>();
  options.target = view.get();
  options.n_events = events_of(program);
  options.n_marks = marks;
  options.index = index;
  void* handle = nullptr;
  TRY_STATUS(machine->call("open", [&](galley_error* error) { return device.open(device.self, &options, &handle, error); }));
  machine->handle_ = handle;
  TRY_STATUS(machine->allocate(target, shift));
  return machine;
}

Status Machine::allocate(const Target& target, int64_t shift) {
  arenas_.resize(plan_.classes.size());
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const int64_t bytes = plan_.classes[i].planned;
    if (bytes == 0) continue;
    const std::string name = i < target.memories.size() ? target.memories[i].name : std::to_string(i);
    if (i >= device_.n_memories || !galley_same_text(device_.memories[i]->name, name.c_str()) ||
        device_.memories[i]->alignment < target.memories[i].alignment) {
      return recipe_error(
          "the plan uses memory class '" + name + "' (number " + std::to_string(i) + "), which device '" + device_.kind + "' does not have",
          "plans for other machines can be made with 'galley plan --target', but only run there");
    }
    void* data = nullptr;
    arenas_[i].shift = device_.memories[i]->flags & GALLEY_MEMORY_HOST_ACCESS ? shift : 0;
    const int64_t asked = bytes + arenas_[i].shift;
    Status allocated =
        call("allocate", [&](galley_error* error) { return device_.allocate(handle_, static_cast<uint32_t>(i), asked, &data, error); });
    if (!allocated.ok()) {
      Error error = std::move(allocated).error();
      return Error{Exit::DoesNotFit, std::to_string(bytes) + " bytes of '" + name + "': " + error.cause,
                   error.hint.empty() ? "'galley plan' shows who holds the bytes" : error.hint};
    }
    if (data) data = static_cast<std::byte*>(data) + arenas_[i].shift;
    arenas_[i].data = static_cast<std::byte*>(data);
    arenas_[i].bytes = bytes;
    arenas_[i].host_access = (device_.memories[i]->flags & GALLEY_MEMORY_HOST_ACCESS) != 0;
    if (!data && (arenas_[i].host_access || device_.memories[i]->flags & GALLEY_MEMORY_COMPUTES))
      return plugin_error("device '" + std::string(device_.kind) + "': the arena of '" + name + "' has no address");
    if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(target.memories[i].alignment) != 0) {
      return plugin_error("device '" + std::string(device_.kind) + "': the arena of '" + name + "' is not aligned to " +
                          std::to_string(target.memories[i].alignment) + " bytes");
    }
    if (copies_ == HostCopies::Yes) {
      arenas_[i].copy.assign(static_cast<size_t>(bytes), kJunk);
      TRY_STATUS(write_arena(i, 0, arenas_[i].copy));
    }
  }
  return ok();
}

Machine::~Machine() {
  if (!handle_) return;
  (void)synchronize();
  for (size_t i = arenas_.size(); i-- > 0;)
    if (arenas_[i].bytes > 0)
      device_.release(handle_, static_cast<uint32_t>(i), arenas_[i].data - arenas_[i].shift, arenas_[i].bytes + arenas_[i].shift);
  device_.close(handle_);
}

galley_queue* Machine::queue() const { return device_.queue_of ? device_.queue_of(handle_, 0) : nullptr; }

std::byte* Machine::kernel_address(TensorId tensor, int64_t offset) const {
  return arena_of(tensor).data + plan_.placements[static_cast<size_t>(tensor)].offset + offset;
}

std::byte* Machine::host_address(TensorId tensor, int64_t offset) const {
  const Arena& arena = arena_of(tensor);
  const int64_t at = plan_.placements[static_cast<size_t>(tensor)].offset + offset;
  if (copies_ == HostCopies::Yes) return const_cast<std::byte*>(arena.copy.data()) + at;
  return arena.host_access ? arena.data + at : nullptr;
}

Status Machine::launch(uint32_t queue, const galley_kernel& kernel, void* state, const Caller& whose) {
  return call(whose, "enqueue", [&](galley_error* error) { return device_.launch(handle_, queue, &kernel, state, error); });
}
Status Machine::run_on_host(const galley_kernel& kernel, void* state, const Caller& whose) {
  TRY_STATUS(synchronize());
  return call_plugin(
      whose, "enqueue", [&](galley_error* error) { return kernel.enqueue(state, nullptr, error); }, Phase::Run);
}
Status Machine::copy(uint32_t queue, const galley_copy& copy) {
  return call("copy", [&](galley_error* error) { return device_.copy(handle_, queue, &copy, error); });
}
Status Machine::record(uint32_t queue, uint32_t event) {
  return call("record", [&](galley_error* error) { return device_.record(handle_, queue, event, error); });
}
Status Machine::wait(uint32_t queue, uint32_t event) {
  return call("wait", [&](galley_error* error) { return device_.wait(handle_, queue, event, error); });
}
Status Machine::await(uint32_t event) {
  return call("await", [&](galley_error* error) { return device_.await(handle_, event, error); });
}
Status Machine::synchronize() {
  return call("synchronize", [&](galley_error* error) { return device_.synchronize(handle_, error); });
}

Status Machine::mark(uint32_t queue, uint32_t mark) {
  return call("mark", [&](galley_error* error) { return device_.mark(handle_, queue, mark, error); });
}
Result<double> Machine::time(uint32_t mark) {
  double seconds = 0;
  TRY_STATUS(call("time", [&](galley_error* error) { return device_.time(handle_, mark, &seconds, error); }));
  return seconds;
}
Result<std::optional<MemoryUse>> Machine::usage(size_t memory) {
  if (!device_.usage) return std::optional<MemoryUse>();
  MemoryUse use;
  bool says = true;
  TRY_STATUS(call("usage", [&](galley_error* error) {
    const galley_status status = device_.usage(handle_, static_cast<uint32_t>(memory), &use.taken, &use.capacity, error);
    says = status != GALLEY_UNSUPPORTED;
    return says ? status : GALLEY_OK;
  }));
  return says ? std::optional(use) : std::optional<MemoryUse>();
}
Result<galley_capture*> Machine::capture(const std::function<Status()>& work) {
  TRY_STATUS(call("capture", [&](galley_error* error) { return device_.capture(handle_, error); }));
  Status worked = work();
  galley_capture* run = nullptr;
  Status ended = call("end_capture", [&](galley_error* error) { return device_.end_capture(handle_, &run, error); });
  if (worked.ok() && ended.ok()) return run;
  if (run) discard(run);
  return worked.ok() ? std::move(ended).error() : std::move(worked).error();
}
Status Machine::replay(galley_capture* run) {
  return call("replay", [&](galley_error* error) { return device_.replay(handle_, run, error); });
}
void Machine::discard(galley_capture* run) {
  (void)call("discard", [&](galley_error*) {
    device_.discard(handle_, run);
    return GALLEY_OK;
  });
}

galley_copy Machine::between(TensorId to, int64_t to_offset, TensorId from, int64_t from_offset, int64_t bytes) const {
  galley_copy out = new_struct<galley_copy>();
  out.bytes = bytes;
  out.to_memory = program_.tensors[static_cast<size_t>(to)].memory;
  out.to_offset = arenas_[out.to_memory].shift + plan_.placements[static_cast<size_t>(to)].offset + to_offset;
  out.from_memory = program_.tensors[static_cast<size_t>(from)].memory;
  out.from_offset = arenas_[out.from_memory].shift + plan_.placements[static_cast<size_t>(from)].offset + from_offset;
  return out;
}

Status Machine::copy(TensorId to, int64_t to_offset, TensorId from, int64_t from_offset, int64_t bytes) {
  if (bytes == 0) return ok();
  // A copy is where the bytes are, and nothing is ever pending.
  if (copies_ == HostCopies::Yes) {
    std::memcpy(host_address(to, to_offset), host_address(from, from_offset), static_cast<size_t>(bytes));
    return ok();
  }
  return copy(0, between(to, to_offset, from, from_offset, bytes));
}

Status Machine::get(TensorId tensor, int64_t offset, std::span<std::byte> bytes) {
  return show(tensor, offset, static_cast<int64_t>(bytes.size()), [&bytes](std::span<const std::byte> piece) -> Status {
    std::ranges::copy(piece, bytes.begin());
    bytes = bytes.subspan(piece.size());
    return ok();
  });
}

Status Machine::in_pieces(int64_t bytes, const std::function<Status(int64_t, std::span<std::byte>)>& piece) const {
  std::byte* const at = program_.staging != no_tensor ? host_address(program_.staging) : nullptr;
  const int64_t most = at ? program_.tensors[static_cast<size_t>(program_.staging)].bytes : 0;
  if (most == 0) return plugin_error("the plan has no staging buffer that the host can reach");
  for (int64_t done = 0; done < bytes; done += most) TRY_STATUS(piece(done, {at, static_cast<size_t>(std::min(bytes - done, most))}));
  return ok();
}

Status Machine::show(TensorId tensor, const std::function<Status(std::span<const std::byte>)>& piece) {
  return show(tensor, 0, program_.tensors[static_cast<size_t>(tensor)].bytes, piece);
}

Status Machine::show(TensorId tensor, int64_t offset, int64_t bytes, const std::function<Status(std::span<const std::byte>)>& piece) {
  TRY_STATUS(synchronize());
  if (const std::byte* at = host_address(tensor, offset)) return piece({at, static_cast<size_t>(bytes)});
  return in_pieces(bytes, [&](int64_t done, std::span<std::byte> here) -> Status {
    TRY_STATUS(copy(program_.staging, 0, tensor, offset + done, std::ssize(here)));
    TRY_STATUS(synchronize());
    return piece(here);
  });
}

Status Machine::fill(TensorId tensor, int64_t offset, int64_t bytes, const std::function<Status(std::span<std::byte>)>& piece) {
  TRY_STATUS(synchronize());
  if (std::byte* at = host_address(tensor, offset)) return piece({at, static_cast<size_t>(bytes)});
  return in_pieces(bytes, [&](int64_t done, std::span<std::byte> here) -> Status {
    TRY_STATUS(piece(here));
    TRY_STATUS(copy(tensor, offset + done, program_.staging, 0, std::ssize(here)));
    return synchronize();
  });
}

std::span<const std::byte> Machine::arena(size_t memory) const {
  const Arena& arena = arenas_[memory];
  return {arena.data, arena.host_access ? static_cast<size_t>(arena.bytes) : 0};
}

Status Machine::exchange(size_t memory, int64_t offset, size_t bytes, void* to, const void* from) {
  if (bytes == 0) return ok();
  const Arena& arena = arenas_[memory];
  if (arena.host_access) {
    std::memcpy(to ? to : arena.data + offset, from ? from : arena.data + offset, bytes);
    return ok();
  }
  galley_copy moved = new_struct<galley_copy>();
  moved.bytes = static_cast<int64_t>(bytes);
  moved.to_memory = to ? GALLEY_MEMORY_PROCESS : static_cast<uint32_t>(memory);
  moved.from_memory = from ? GALLEY_MEMORY_PROCESS : static_cast<uint32_t>(memory);
  moved.to_address = to;
  moved.from_address = from;
  (to ? moved.from_offset : moved.to_offset) = arena.shift + offset;
  TRY_STATUS(copy(0, moved));
  return synchronize();
}

}  // namespace galley
