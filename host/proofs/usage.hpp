// What the process holds: open files, and bytes of malloc.
#pragma once

#include <dirent.h>
#include <malloc.h>

#include <cstdint>

namespace galley {

inline int64_t open_files() {
  int64_t out = 0;
  if (DIR* folder = ::opendir("/proc/self/fd")) {
    while (::readdir(folder)) ++out;
    ::closedir(folder);
  }
  return out;
}

/// Bytes that malloc has given and not taken back.
inline int64_t memory_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace galley
