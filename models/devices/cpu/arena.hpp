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

/// The number that stands in a file; −1: there is none, as in "max".
inline int64_t number_in(const std::string& file) {
  int64_t number = 0;
  std::ifstream stream(file);
  return stream >> number ? number : -1;
}

/// What one group of processes may still take: its limit without what it holds, of which the file cache can be given back. −1: it has none.
inline int64_t group_available(const std::string& folder, const char* limit_name, const char* held_name, const char* cache_name) {
  const int64_t limit = number_in(folder + "/" + limit_name), held = number_in(folder + "/" + held_name);
  if (limit < 0) return -1;
  int64_t cache = 0;
  std::ifstream statistics(folder + "/memory.stat");
  for (std::string name, value; statistics >> name >> value;)
    if (name == cache_name) cache = std::strtoll(value.c_str(), nullptr, 10);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, held - cache));
}

/// Bytes that the system can still hand out without killing someone for them: of the machine, and of each group that this process is in
/// (cgroups of version 1 and 2). `root` is "" but in tests.
inline int64_t available_bytes(const std::string& root = "") {
  int64_t available = 0;
  std::ifstream info(root + "/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:") || line.starts_with("SwapFree:"))
      available += std::strtoll(line.c_str() + line.find(':') + 1, nullptr, 10) * 1024;
  if (available == 0) return std::numeric_limits<int64_t>::max();  // the system does not say
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);  // "4:memory:/a/b", of version 2 "0::/a/b"
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",memory,") == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (unified ? "" : "/memory");
    // A limit holds for the groups below, too. In a container the path may be that of the machine outside: then the mount itself counts.
    for (std::string group = line.substr(second + 1);; group.resize(group.rfind('/'))) {
      if (group.ends_with('/')) group.pop_back();
      const int64_t left = unified
                               ? group_available(mount + group, "memory.max", "memory.current", "inactive_file")
                               : group_available(mount + group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
      if (left >= 0) available = std::min(available, left);
      if (group.find('/') == std::string::npos) break;
    }
  }
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
