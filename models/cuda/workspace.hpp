// Where a kernel's workspace begins that wants it more aligned than the host gives it: `query` asks for kWorkspaceAlignment bytes more.
#pragma once

#include <cstdint>

namespace galley::cuda {

inline constexpr int64_t kWorkspaceAlignment = 256;

/// The first address in the workspace that is a multiple of kWorkspaceAlignment.
inline char* aligned_workspace(void* workspace) {
  constexpr uintptr_t alignment = kWorkspaceAlignment;
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return static_cast<char*>(workspace) + (alignment - address % alignment) % alignment;
}

}  // namespace galley::cuda
