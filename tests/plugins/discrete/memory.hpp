// The memory classes of the device "discrete":
//
//   0  device   where kernels compute. Its pages are accessible while the device works and at no other time, so that a host which reads or
//               writes it by an address ends with a fault.
//   1  pinned   memory that host and device reach, and where nothing computes.
//   2  file     an unlinked temporary file. It has no addresses: positioned reads and writes are the only way to its bytes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "../../../models/devices/cpu/arena.hpp"

namespace galley::discrete {

inline constexpr uint32_t kDevice = 0, kPinned = 1, kFile = 2, kClasses = 3;
inline constexpr const char* kClassNames[kClasses] = {"device", "pinned", "file"};

class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (file_ >= 0) ::close(file_);
  }

  /// The address of the arena; null for the file.
  void* allocate(uint32_t memory, int64_t bytes) {
    if (memory >= kClasses || bytes <= 0) sdk::invalid("there is no arena of " + std::to_string(bytes) + " bytes");
    bytes_[memory] = bytes;
    if (memory == kFile) {
      file_ = ::open(std::filesystem::temp_directory_path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
      if (file_ < 0 || ::ftruncate(file_, bytes) != 0)
        throw sdk::Failure(GALLEY_FAILED, std::to_string(bytes) + " bytes in a temporary file: " + std::strerror(errno));
      return nullptr;
    }
    arenas_[memory] = static_cast<std::byte*>(cpu::allocate_arena(kClassNames[memory], bytes));
    if (memory == kDevice) protect(PROT_NONE);
    return arenas_[memory];
  }

  void release(uint32_t memory) noexcept {
    if (memory != kFile) cpu::release_arena(arenas_[memory], bytes_[memory]);
    arenas_[memory] = nullptr;
  }

  /// While it lives, the device may touch its own memory.
  class Access {
   public:
    explicit Access(const Memory& memory) : memory_(memory) { memory_.protect(PROT_READ | PROT_WRITE); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
    ~Access() { memory_.protect(PROT_NONE); }

   private:
    const Memory& memory_;
  };

  void copy(const galley_copy& c) const {
    const auto bytes = static_cast<size_t>(c.bytes);
    if (c.to_memory == kFile && c.from_memory == kFile) sdk::invalid("a copy from the file to itself");
    if (c.to_memory == kFile) {
      transfer(::pwrite, side(c.from_memory, c.from_offset, c.from_address), bytes, c.to_offset);
    } else if (c.from_memory == kFile) {
      transfer(::pread, side(c.to_memory, c.to_offset, c.to_address), bytes, c.from_offset);
    } else {
      std::memmove(side(c.to_memory, c.to_offset, c.to_address), side(c.from_memory, c.from_offset, c.from_address), bytes);
    }
  }

 private:
  void protect(int how) const noexcept {
    if (arenas_[kDevice]) ::mprotect(arenas_[kDevice], static_cast<size_t>(bytes_[kDevice]), how);
  }

  std::byte* side(uint32_t memory, int64_t offset, const void* address) const {
    if (memory == GALLEY_MEMORY_PROCESS) return static_cast<std::byte*>(const_cast<void*>(address));
    if (memory >= kClasses || !arenas_[memory])
      sdk::invalid("a copy names memory class " + std::to_string(memory) + ", which has no arena");
    return arenas_[memory] + offset;
  }

  template <class Call>
  void transfer(Call&& call, std::byte* data, size_t bytes, int64_t offset) const {
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = call(file_, data + done, bytes - done, static_cast<off_t>(offset) + static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        throw sdk::Failure(GALLEY_FAILED, std::string("the memory class 'file': ") + (n ? std::strerror(errno) : "it is too short"));
      done += static_cast<size_t>(n);
    }
  }

  std::array<std::byte*, kClasses> arenas_ = {};
  std::array<int64_t, kClasses> bytes_ = {};
  int file_ = -1;
};

}  // namespace galley::discrete
