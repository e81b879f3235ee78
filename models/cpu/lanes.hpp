// Work whose tasks need buffers. There are as many lanes as threads, each with buffers of its own; a lane takes the next task until none is
// left, so that one whose thread is kept waiting holds up one task.
#pragma once

#include <atomic>

#include "galley/cpp/plugin.hpp"

namespace galley::cpu {

/// body(task, lane) for each task in [0, tasks), in order of their beginning. A lane does one task at a time; which does what must not
/// matter.
template <class Body>
inline void in_lanes(int64_t n_lanes, int64_t tasks, const Body& body) {
  std::atomic<int64_t> next = 0;
  sdk::parallel(n_lanes, [&](int64_t lane) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) body(task, lane);
  });
}

}  // namespace galley::cpu
