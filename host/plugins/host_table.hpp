// What the host offers to plugins: log, and work divided among the compute threads.
#pragma once

#include "galley/entry.h"

namespace galley {

/// Lives as long as the process. [thread-safe]
const galley_host* host_table();

/// How many threads `parallel` and libraries that use OpenMP compute with; at least 1. Before the first kernel runs. [main-thread]
void set_compute_threads(int threads);
/// The default is the smaller of OMP_NUM_THREADS and the processors that this process may run on.
int compute_threads();

}  // namespace galley
