// What the host offers to plugins: log, and work divided among the compute threads.
#pragma once

#include "galley/entry.h"

namespace galley {

/// Lives as long as the process. [thread-safe]
const galley_host* host_table();

/// How many threads `parallel` divides the calling thread's work among, if this process may use as many processors; else as many as those.
/// At first, all of them. Threads that never call this have what was set last. [thread-safe]
void set_compute_threads(int threads);

}  // namespace galley
