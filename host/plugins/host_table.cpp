#include "host/plugins/host_table.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "host/base/log.hpp"
#include "host/base/ordered.hpp"
#include "host/base/pool.hpp"
#include "host/plugins/fault.hpp"
#include "host/plugins/files_service.hpp"

namespace galley {
namespace {

// More threads than processors would only take turns, and which thread does a block changes nothing: kernels may count on as many as a
// target says without any that gets in the others' way.
int useful(int threads) { return std::min(threads, static_cast<int>(usable_threads())); }

// One for each number of threads, which sessions share: work of one that finds the pool busy is done on its own thread. They are never
// destroyed: others may be at work in one, and at the end of the process its threads sleep and nobody waits for them.
Pool& pool_of(int threads) {
  static std::mutex mutex;
  static auto& pools = *new std::map<int, std::unique_ptr<Pool>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Pool>& pool = pools[threads];
  if (!pool) pool = std::make_unique<Pool>(threads);
  return *pool;
}

thread_local Pool* of_this_thread = nullptr;
std::atomic<Pool*> last_set = nullptr;  // for threads that have set none: a device's own

Pool& pool() {
  if (of_this_thread) return *of_this_thread;
  if (Pool* last = last_set) return *last;
  return pool_of(static_cast<int>(usable_threads()));
}

constexpr std::chrono::microseconds kWhile(200);  // of BlockOrder::Late
std::atomic<BlockOrder> block_order = BlockOrder::Free;
std::atomic<const char*> misuse = nullptr;
void note_misuse(const char* what) {
  if (Calling::here()) misuse = what;  // by a plugin, on a thread of the host
}

void log_line(void*, uint32_t level, const char* text) {
  if (!text) {
    note_misuse("it logs no text (NULL)");
    return;
  }
  log(level == GALLEY_LOG_WARNING ? LogLevel::Warning : level == GALLEY_LOG_INFO ? LogLevel::Note : LogLevel::Debug, text);
}

void parallel(void*, int64_t blocks, void (*fn)(void*, int64_t), void* context) {
  if (blocks < 0) note_misuse("it divides fewer than no blocks of work among threads");
  if (!fn) note_misuse("it divides work among threads without a function (NULL)");
  if (blocks <= 0 || !fn) return;
  const BlockOrder order = block_order.load(std::memory_order_relaxed);
  if (order == BlockOrder::Late) std::this_thread::sleep_for(kWhile);
  while (order == BlockOrder::Reverse && blocks > 0) fn(context, --blocks);
  if (blocks > 0) pool().run(blocks, fn, context);
  if (order == BlockOrder::Late) std::this_thread::sleep_for(kWhile);
}

const void* service(void*, const char* id) { return id && std::string_view(id) == GALLEY_FILES ? files_service() : nullptr; }

}  // namespace

const galley_host* host_table() {
  static const galley_host table = {sizeof(galley_host), 1, GALLEY_ABI_MAJOR, GALLEY_ABI_MINOR, nullptr, log_line, parallel, service};
  return &table;
}

void set_block_order(BlockOrder order) { block_order = order; }

const char* take_misuse() { return misuse.load(std::memory_order_relaxed) ? misuse.exchange(nullptr) : nullptr; }

void set_compute_threads(int threads) {
  of_this_thread = &pool_of(useful(threads));
  last_set = of_this_thread;
}

}  // namespace galley
