// Finds out which process of a run this one is, from what the program that started it has put into the environment. Whoever plans or prints
// needs no plugin for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "host/base/result.hpp"

namespace galley {

/// The place of a process among those of its run.
struct RankPlace {
  int64_t rank = 0, ranks = 1;              ///< of the run
  int64_t local_rank = 0, local_ranks = 1;  ///< of those on this machine
  std::string launcher = {};                ///< "mpirun", "mpiexec", "torchrun" or "Slurm"; "": none of them has started this process
  /// One text for all processes of this start, fit for a file's name. Another start has another, but for MPICH's mpiexec and a torchrun
  /// with an --rdzv-id and a port that the user chose: these say nothing that would tell two starts apart.
  std::string job = {};
};

/// Returns the value of a variable, or NULL if it is not set: std::getenv, or a test's.
using Environment = std::function<const char*(const char* name)>;

/// Reads the first of these that is there:
///   torchrun        RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, with TORCHELASTIC_RUN_ID. It comes first, since mpirun or srun may have
///                   started one torchrun on each machine
///   Open MPI        OMPI_COMM_WORLD_RANK, …_SIZE, …_LOCAL_RANK, …_LOCAL_SIZE
///   MPICH, Intel    PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
///   like torchrun   RANK and WORLD_SIZE, both
///   Slurm           SLURM_PROCID, SLURM_LOCALID, SLURM_NODEID, SLURM_STEP_TASKS_PER_NODE, where SLURM_STEP_NUM_TASKS is more than 1.
///                   (SLURM_NTASKS is of the allocation: a process that salloc's shell starts would wait for others that nobody starts.)
/// Where none is, the process is the only one. Variables that are missing, are no numbers or contradict each other are an error (exit code
/// Recipe) that has their names and values.
Result<RankPlace> rank_place(const Environment& environment);

/// Returns "rank 0 of 8 (mpirun, 2 machines)", for people. `machines` is 0 where their number is not known yet.
std::string described(const RankPlace& place, int64_t machines);

}  // namespace galley
