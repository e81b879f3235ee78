// Runs of several processes with an NVIDIA GPU each, over NCCL: galley.ranks/1, for the device "cuda". The kernels of exchanges are in
// cuda.cu.
//
// Source: NVIDIA, "NCCL User Guide", version 2.28: Creating a Communicator, Error handling and communicator abort, Group Calls, Thread
// Safety, Environment Variables (NCCL_COMM_ID); "CUDA Driver API", version 13.0.
//
// A run of one rank touches neither NCCL nor the driver.
//
//   GALLEY_NCCL=FILE           the library, instead of libnccl.so.2
//   GALLEY_NCCL_WAIT=SECONDS   how long a rank waits at the start for the others to come; 300
//   NCCL_COMM_ID=HOST:PORT     NCCL's own: rank 0 waits there for the others, and no folder is needed
#include <cstdlib>
#include <memory>
#include <optional>

#include "bytes.hpp"
#include "galley/cpp/plugin.hpp"
#include "meeting.hpp"

namespace galley::nccl {
namespace {

using namespace sdk;

constexpr std::chrono::seconds kEnd(10);  // for the others to come to the end

/// What the handle is. Kernels take it for Ranks.
struct Run : Ranks {
  Run() = default;
  Run(const Library& nccl, const Driver& driver, const galley_ranks_options& o)
      : Ranks(nccl, static_cast<int>(o.rank), static_cast<int>(o.ranks)) {
    gpu.emplace(driver, o.local_rank);
    set_gpu(gpu->number());
  }
  std::optional<Gpu> gpu;
};
Run& run_of(void* handle) { return *static_cast<Run*>(static_cast<Ranks*>(handle)); }

/// Both once they are needed. Throws if there is none.
const Library& library() {
  static const Library nccl;
  return nccl;
}
const Driver& driver() {
  static const Driver found;
  return found;
}

/// Seconds.
int longest_wait() {
  const char* const text = std::getenv("GALLEY_NCCL_WAIT");
  if (!text) return 300;
  char* end = nullptr;
  const long seconds = std::strtol(text, &end, 10);
  if (end == text || *end || seconds < 1 || seconds > 1'000'000) invalid(std::string("GALLEY_NCCL_WAIT = ") + text + " are no seconds");
  return static_cast<int>(seconds);
}

std::unique_ptr<Run> join(const galley_ranks_options& o) {
  using Clock = std::chrono::steady_clock;
  const int seconds = longest_wait();
  const auto deadline = Clock::now() + std::chrono::seconds(seconds);
  const std::string in_vain = " within " + std::to_string(seconds) + " s";
  const Library& nccl = library();
  auto run = std::make_unique<Run>(nccl, driver(), o);
  std::optional<Meeting> meeting;
  UniqueId id = {};
  const auto make_id = [&] {
    if (const int result = nccl.get_unique_id(&id); result != kSuccess)
      throw Failure(GALLEY_FAILED, nccl.text("ncclGetUniqueId", result, nullptr));
  };
  if (const char* const root = std::getenv("NCCL_COMM_ID"); root && *root) {
    make_id();  // the same one on all ranks
  } else {
    if (!o.meeting || !o.job) invalid("no folder is given in which ranks could find each other");
    meeting.emplace(o.meeting, o.job, run->rank(), run->ranks());
    if (o.rank == 0) make_id();
    for (Patience patience; o.rank > 0 && !meeting->answered(&id); patience.wait())
      if (Clock::now() > deadline)
        throw Failure(GALLEY_FAILED, "rank 0 has not written '" + meeting->file().string() + "' for this process" + in_vain,
                      "all processes have to see this folder and to be started together; GALLEY_NCCL_WAIT=SECONDS waits longer");
  }
  try {
    run->begin(id);
    run->settle("ncclCommInitRankConfig", [&] {
      if (meeting && o.rank == 0) meeting->answer(id);
      if (Clock::now() > deadline)
        throw Failure(GALLEY_FAILED, "not all of " + std::to_string(o.ranks) + " ranks have joined NCCL's communicator" + in_vain,
                      "NCCL_DEBUG=INFO shows what NCCL does; GALLEY_NCCL_WAIT=SECONDS waits longer");
    });
  } catch (...) {
    run->abort();
    throw;
  }
  return run;
}

galley_status open(void*, const galley_ranks_options* options, void** handle, galley_error* error) noexcept {
  return guard(error, [&] {
    const galley_ranks_options o = read(options);
    if (o.ranks < 1 || o.rank < 0 || o.rank >= o.ranks) invalid("rank " + std::to_string(o.rank) + " of " + std::to_string(o.ranks));
    *handle = static_cast<Ranks*>((o.ranks == 1 ? std::make_unique<Run>() : join(o)).release());
  });
}

galley_status exchange(void* handle, const void* mine, int64_t bytes, void* all, galley_error* error) noexcept {
  return guard(error, [&] {
    Run& run = run_of(handle);
    if (run.gpu) run.gpu->exchange(run, mine, bytes, all);
    else std::memcpy(all, mine, static_cast<size_t>(bytes));
  });
}

galley_status check(void* handle, int64_t* culprit, galley_error* error) noexcept {
  return guard(error, [&] {
    *culprit = -1;  // NCCL does not say who
    if (Run& run = run_of(handle); run.library()) run.check();
  });
}

void abort(void* handle) noexcept { run_of(handle).abort(); }

void close(void* handle) noexcept {
  const std::unique_ptr<Run> run(&run_of(handle));
  run->close(kEnd);
}

const galley_ranks table = {sizeof(galley_ranks), 1, nullptr, "nccl", "cuda", open, exchange, check, abort, close, 0};
const bool registered = add(&table);

}  // namespace
}  // namespace galley::nccl

GALLEY_PLUGIN("nccl", "1.0.0");
