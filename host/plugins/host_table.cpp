#include "host/plugins/host_table.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <string_view>

#include "host/base/log.hpp"
#include "host/base/ordered.hpp"
#include "host/base/pool.hpp"
#include "host/plugins/files_service.hpp"

namespace galley {
namespace {

// More threads than processors would only take turns, and which thread does a block changes nothing: kernels may count on as many as a
// target says without any that gets in the others' way.
int useful(int threads) { return std::min(threads, static_cast<int>(usable_threads())); }

// Never destroyed at the end of the process: its threads sleep then, and nobody waits for them.
std::unique_ptr<Pool>& pool() {
  static auto& p = *new std::unique_ptr<Pool>(std::make_unique<Pool>(useful(std::numeric_limits<int>::max())));
  return p;
}

void log_line(void*, uint32_t level, const char* text) {
  if (!text) return;
  log(level == GALLEY_LOG_WARNING ? LogLevel::Warning : level == GALLEY_LOG_INFO ? LogLevel::Note : LogLevel::Debug, text);
}

void parallel(void*, int64_t blocks, void (*fn)(void*, int64_t), void* context) { pool()->run(blocks, fn, context); }

const void* service(void*, const char* id) { return id && std::string_view(id) == GALLEY_FILES ? files_service() : nullptr; }

}  // namespace

const galley_host* host_table() {
  static const galley_host table = {sizeof(galley_host), 1, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR, nullptr, log_line, parallel, service};
  return &table;
}

void set_compute_threads(int n) { pool() = std::make_unique<Pool>(useful(n)); }

}  // namespace galley
