// What the host offers to plugins: log, and work divided among the compute threads.
#pragma once

#include <cstdint>

#include "galley/entry.h"

namespace galley {

/// Lives as long as the process. [thread-safe]
const galley_host* host_table();

/// In which order `parallel` does blocks: as threads come free, also with a while before and after in which other sessions get on, or on the
/// calling thread from the last one to the first. For checks: nothing may depend on it. [thread-safe]
enum class BlockOrder : uint8_t { Free, Reverse, Late };
void set_block_order(BlockOrder order);

/// What a plugin has asked of the host that makes no sense ("it divides -1 blocks of work among threads"), since this was last asked; null:
/// nothing. [thread-safe]
const char* take_misuse();

/// How many threads `parallel` divides the calling thread's work among, if this process may use as many processors; else as many as those.
/// At first, all of them. Threads that never call this have what was set last. [thread-safe]
void set_compute_threads(int threads);

}  // namespace galley
