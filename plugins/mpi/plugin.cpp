// Runs of several processes over Open MPI: galley.ranks/1, for the device "cpu". The kernels of exchanges are in cpu.cpp.
//
// Source: MPI: A Message-Passing Interface Standard, version 3.1: chapters 3 and 5 (messages, collectives), 8.3 and 8.7 (errors, start,
// end) and 12.4 (threads).
//
// MPI begins once in a process, with the first run of several ranks, and ends with the process: so a process may have runs one after the
// other. A run of one rank does not touch it, nor needs it.
#include <cstdlib>
#include <memory>
#include <mutex>

#include "galley/cpp/plugin.hpp"
#include "ranks.hpp"

namespace galley::mpi {
namespace {

using namespace sdk;

/// Of the process.
struct Process {
  std::mutex mutex;
  bool begun = false;
  bool broken = false;  ///< a run did not end in order: others may never come to the end, and MPI_Finalize would wait for them
  int open = 0;         ///< runs
};
Process& process() {
  static Process p;
  return p;
}

/// Open MPI's, once it is needed. Throws if there is none.
const Library& library() {
  static const Library mpi;
  return mpi;
}

/// Begins MPI. The process's lock is held.
void begin(const Library& mpi) {
  // Who waits in MPI's own calls gives the processor to who wants it: other threads of this process, and the ranks that are waited for, unless
  // the user says otherwise. Exchanges wait in Ranks::wait.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  int provided = 0;
  mpi.check(mpi.init_thread(nullptr, nullptr, kMultiple, &provided), "MPI_Init_thread");
  process().begun = true;
  // One thread calls at a time, but for the one that aborts.
  if (provided < kSerialized) throw Failure(GALLEY_FAILED, "Open MPI serves only the thread that has begun it", "take a newer Open MPI");
  mpi.check(mpi.comm_set_errhandler(mpi.world, mpi.errors_return), "MPI_Comm_set_errhandler");
}

std::unique_ptr<Ranks> join(const galley_ranks_options& o) {
  const Library& mpi = library();
  // MPI would begin a world of one process, for which it starts a server of its own.
  if (!std::getenv("OMPI_COMM_WORLD_SIZE") && !std::getenv("PMIX_RANK"))
    invalid("another launcher than Open MPI's has started this process, rank " + std::to_string(o.rank) + " of " + std::to_string(o.ranks),
            "start all by Open MPI's mpirun, or by srun --mpi=pmix");
  const std::lock_guard lock(process().mutex);
  const bool broken = std::exchange(process().broken, true);  // until all is well
  if (!process().begun) begin(mpi);
  int rank = 0, ranks = 0;
  mpi.check(mpi.comm_rank(mpi.world, &rank), "MPI_Comm_rank");
  mpi.check(mpi.comm_size(mpi.world, &ranks), "MPI_Comm_size");
  if (rank != o.rank || ranks != o.ranks)
    invalid("the launcher says rank " + std::to_string(o.rank) + " of " + std::to_string(o.ranks) + ", and MPI has rank " +
                std::to_string(rank) + " of " + std::to_string(ranks),
            "start all processes by one mpirun of the Open MPI whose library is used");
  Comm comm = nullptr;
  mpi.check(mpi.comm_dup(mpi.world, &comm), "MPI_Comm_dup");
  mpi.check(mpi.comm_set_errhandler(comm, mpi.errors_return), "MPI_Comm_set_errhandler");
  process().broken = broken;
  ++process().open;
  return std::make_unique<Ranks>(mpi, comm, rank, ranks);
}

galley_status open(void*, const galley_ranks_options* options, void** handle, galley_error* error) noexcept {
  return guard(error, [&] {
    const galley_ranks_options o = read(options);
    if (o.ranks < 1 || o.rank < 0 || o.rank >= o.ranks) invalid("rank " + std::to_string(o.rank) + " of " + std::to_string(o.ranks));
    *handle = (o.ranks == 1 ? std::make_unique<Ranks>() : join(o)).release();
  });
}

galley_status exchange(void* handle, const void* mine, int64_t bytes, void* all, galley_error* error) noexcept {
  return guard(error, [&] {
    auto& ranks = *static_cast<Ranks*>(handle);
    if (ranks.library()) ranks.gather(mine, bytes, all);
    else std::memcpy(all, mine, static_cast<size_t>(bytes));
  });
}

galley_status check(void* handle, int64_t* culprit, galley_error* error) noexcept {
  return guard(error, [&] {
    const auto& ranks = *static_cast<const Ranks*>(handle);
    *culprit = ranks.culprit();
    if (ranks.lost()) throw Failure(GALLEY_LOST, "an exchange by MPI has failed");
  });
}

void abort(void* handle) noexcept {
  const auto& ranks = *static_cast<const Ranks*>(handle);
  if (ranks.library()) (void)ranks.library()->abort(ranks.comm(), 1);  // ends this process too
}

void close(void* handle) noexcept {
  const std::unique_ptr<Ranks> ranks(static_cast<Ranks*>(handle));
  const Library* const mpi = ranks->library();
  if (!mpi) return;
  const std::lock_guard lock(process().mutex);
  --process().open;
  const auto met = [&] {  // all of them
    Request request = nullptr;
    return guard(nullptr, [&] { ranks->wait(mpi->ibarrier(ranks->comm(), &request), &request, "MPI_Ibarrier"); }) == GALLEY_OK;
  };
  Comm comm = ranks->comm();
  if (ranks->lost() || !met() || mpi->comm_free(&comm) != kSuccess) process().broken = true;
}

void end() {
  const Process& p = process();
  if (p.begun && !p.broken && !p.open) (void)library().finalize();
}

const galley_ranks table = {sizeof(galley_ranks), 1, nullptr, "mpi", "cpu", open, exchange, check, abort, close, 0};
const bool registered = add(&table) && at_close(end);

}  // namespace
}  // namespace galley::mpi

GALLEY_PLUGIN("mpi", "1.0.0");
