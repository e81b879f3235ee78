// The arenas of the processor's memory classes: zeroed pages from the system, all of them touched before the first is used. Header-only, as
// machine.hpp is.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "galley/cpp/plugin.hpp"

namespace galley::cpu {

/// A huge page: arenas begin on one, so that the kernel can back them with whole ones from the first byte on.
inline constexpr int64_t kHugePage = int64_t{2} << 20;

/// Bytes that the system can still hand out without killing someone for them.
inline int64_t available_bytes() {
  int64_t available = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:") || line.starts_with("SwapFree:"))
      available += std::strtoll(line.c_str() + line.find(':') + 1, nullptr, 10) * 1024;
  if (available == 0) return std::numeric_limits<int64_t>::max();  // the system does not say
  int64_t limit = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && limit > 0) available = std::min(available, limit);
  return available;
}

/// `bytes` (> 0) of zeros at a multiple of 2 MiB, every page touched. Throws sdk::Failure with the bytes in it. Given back by
/// release_arena(same bytes).
inline void* allocate_arena(const char* memory, int64_t bytes) {
  const auto fail = [&](const std::string& why) {
    throw sdk::Failure(GALLEY_FAILED, "cannot allocate " + std::to_string(bytes) + " bytes for memory class '" + memory + "': " + why);
  };
  // The system promises more than it has and kills later; better to say no now.
  if (const int64_t available = available_bytes(); bytes > available) fail("only " + std::to_string(available) + " are available");
  constexpr size_t page = 4096;
  const auto margin = static_cast<size_t>(kHugePage), kept = (static_cast<size_t>(bytes) + page - 1) / page * page;
  void* mapped = ::mmap(nullptr, kept + margin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) fail(std::strerror(errno));
  // The margin goes back at once: what stays mapped is the arena, rounded up to a page.
  auto* const begin = static_cast<std::byte*>(mapped);
  const size_t before = (margin - reinterpret_cast<uintptr_t>(begin) % margin) % margin;
  auto* const arena = begin + before;
  if (before > 0) ::munmap(begin, before);
  ::munmap(arena + kept, margin - before);
  ::madvise(arena, kept, MADV_HUGEPAGE);  // without them it is only slower

  const auto touch = [&](int64_t block) {
    const int64_t from = block * 16 * kHugePage, to = std::min(static_cast<int64_t>(kept), from + 16 * kHugePage);
    for (int64_t at = from; at < to; at += static_cast<int64_t>(page)) *reinterpret_cast<volatile unsigned char*>(arena + at) = 0;
  };
  const int64_t blocks = (static_cast<int64_t>(kept) + 16 * kHugePage - 1) / (16 * kHugePage);
  if (sdk::host()) {
    sdk::parallel(blocks, touch);
  } else {
    for (int64_t block = 0; block < blocks; ++block) touch(block);
  }
  return arena;
}

inline void release_arena(void* arena, int64_t bytes) noexcept { ::munmap(arena, static_cast<size_t>(bytes)); }

}  // namespace galley::cpu
