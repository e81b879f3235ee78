#include "host/plugins/host_table.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace galley {
namespace {

// OpenMP and not threads of our own: oneDNN computes with OpenMP, and two pools of threads would take each other's processors.
#ifdef _OPENMP
int default_threads() { return std::max(1, std::min(omp_get_max_threads(), omp_get_num_procs())); }
#else
int default_threads() { return 1; }
#endif

int& threads() {
  static int n = default_threads();
  return n;
}

void log_line(void*, uint32_t level, const char* text) {
  if (!text) return;
  const auto as = level == GALLEY_LOG_WARNING ? spdlog::level::warn : level == GALLEY_LOG_INFO ? spdlog::level::info : spdlog::level::debug;
  spdlog::log(as, "{}", text);
}

void parallel(void*, int64_t blocks, void (*fn)(void*, int64_t), void* context) {
#ifdef _OPENMP
  // Always the whole team, even for fewer blocks: OpenMP allocates when the size of a team changes.
  if (blocks > 1 && threads() > 1 && !omp_in_parallel()) {
#pragma omp parallel for schedule(static) num_threads(threads())
    for (int64_t block = 0; block < blocks; ++block) fn(context, block);
    return;
  }
#endif
  for (int64_t block = 0; block < blocks; ++block) fn(context, block);
}

const void* service(void*, const char*) { return nullptr; }

}  // namespace

const galley_host* host_table() {
  static const galley_host table = {sizeof(galley_host), 1, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR, nullptr, log_line, parallel, service};
  return &table;
}

void set_compute_threads(int n) {
  threads() = std::max(1, n);
#ifdef _OPENMP
  omp_set_num_threads(threads());
#endif
}

int compute_threads() { return threads(); }

}  // namespace galley
