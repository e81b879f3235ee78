#include "host/ranks/launcher.hpp"

#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace galley {
namespace {

/// The variables of a launcher.
struct Variables {
  const char* launcher;
  const char *rank, *ranks, *local_rank, *local_ranks;
  std::vector<const char*> job;
};
const Variables open_mpi = {"mpirun",
                            "OMPI_COMM_WORLD_RANK",
                            "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE",
                            // Of Open MPI 4 the first has 16 random bits, the second 128.
                            {"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"}};
const Variables mpich = {"mpiexec",         "PMI_RANK",        "PMI_SIZE",
                         "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID"}};
const Variables torchrun = {"torchrun",         "RANK",
                            "WORLD_SIZE",       "LOCAL_RANK",
                            "LOCAL_WORLD_SIZE", {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"}};
const Variables slurm = {"Slurm",
                         "SLURM_PROCID",
                         "SLURM_STEP_NUM_TASKS",
                         "SLURM_LOCALID",
                         "SLURM_STEP_TASKS_PER_NODE",
                         {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}};

constexpr int64_t most_ranks = int64_t{1} << 20;

Error wrong_environment(const std::string& what) {
  return recipe_error(what, "mpirun, torchrun and srun set these variables for each process; unset them where one process is to run alone");
}

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const { return environment_(name) != nullptr; }
  std::string text(const char* name) const {
    const char* value = environment_(name);
    return value ? value : "";
  }
  /// "RANK = 3".
  std::string said(const char* name) const { return std::string(name) + " = " + text(name); }

  Result<int64_t> number(const char* name, const char* beside) const {
    if (!has(name)) return wrong_environment(std::string(name) + " is not set, but " + said(beside) + " is");
    const std::string value = text(name);
    int64_t out = -1;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error != std::errc() || end != value.data() + value.size() || out < 0 || out > most_ranks)
      return wrong_environment(said(name) + " is no number from 0 to " + std::to_string(most_ranks));
    return out;
  }

  /// A rank and how many there are: two variables. `known` is set.
  Status pair(const char* rank_name, const char* ranks_name, const char* known, int64_t* rank, int64_t* ranks) const {
    *rank = TRY(number(rank_name, known));
    *ranks = TRY(number(ranks_name, known));
    if (*rank < *ranks) return ok();
    return wrong_environment(said(rank_name) + ", but " + said(ranks_name) + ": ranks count from 0, and each is less than their number");
  }

  std::string job(const Variables& variables) const {
    std::string out = variables.launcher;
    for (const char* name : variables.job)
      if (has(name)) out += "." + text(name);
    for (char& c : out)
      if (!std::strchr("-_.", c) && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')) c = '-';
    return out;
  }

 private:
  const Environment& environment_;
};

/// Which variables are there. Slurm's own library for PMI sets MPICH's first two, and none for this machine.
const Variables* variables_of(const Reader& reader) {
  const auto either = [&](const Variables& v) { return reader.has(v.rank) || reader.has(v.ranks); };
  const auto both = [&](const Variables& v) { return reader.has(v.rank) && reader.has(v.ranks); };
  if (reader.has("TORCHELASTIC_RUN_ID") && either(torchrun)) return &torchrun;
  if (either(open_mpi)) return &open_mpi;
  if (either(mpich) && (reader.has(mpich.local_rank) || !reader.has(slurm.ranks))) return &mpich;
  // RANK alone may be anybody's, such as an adapter's.
  if (both(torchrun)) return &torchrun;
  if (reader.has(slurm.ranks) && reader.text(slurm.ranks) != "1") return &slurm;
  return nullptr;
}

/// The entry of "2(x3),1": how many tasks there are on the machine of this number.
std::optional<int64_t> tasks_on(std::string_view list, int64_t machine) {
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    int64_t tasks = 0, times = 1;
    const auto [after, error] = std::from_chars(at, end, tasks);
    if (error != std::errc() || tasks < 1) return std::nullopt;
    at = after;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      const auto [close, wrong] = std::from_chars(at + 2, end, times);
      if (wrong != std::errc() || close == end || *close != ')' || times < 1) return std::nullopt;
      at = close + 1;
    }
    if (machine < times) return tasks;
    machine -= times;
    if (at < end && *at++ != ',') return std::nullopt;
  }
  return std::nullopt;
}

Status read_machine_of_slurm(const Reader& reader, RankPlace* out) {
  const char* const machine_name = "SLURM_NODEID";
  out->local_rank = TRY(reader.number(slurm.local_rank, slurm.ranks));
  const int64_t machine = TRY(reader.number(machine_name, slurm.ranks));
  if (!reader.has(slurm.local_ranks))
    return wrong_environment(std::string(slurm.local_ranks) + " is not set, but " + reader.said(slurm.ranks) + " is");
  const std::optional<int64_t> tasks = tasks_on(reader.text(slurm.local_ranks), machine);
  if (!tasks)
    return wrong_environment(reader.said(slurm.local_ranks) + " does not say how many tasks run on the machine of " +
                             reader.said(machine_name));
  out->local_ranks = *tasks;
  if (out->local_rank < *tasks) return ok();
  return wrong_environment(reader.said(slurm.local_rank) + ", but " + reader.said(slurm.local_ranks) + " has " + std::to_string(*tasks) +
                           " on the machine of " + reader.said(machine_name));
}

}  // namespace

Result<RankPlace> rank_place(const Environment& environment) {
  const Reader reader(environment);
  const Variables* variables = variables_of(reader);
  RankPlace out;
  if (!variables) return out;
  out.launcher = variables->launcher;
  out.job = reader.job(*variables);
  const char* known = reader.has(variables->rank) ? variables->rank : variables->ranks;
  TRY_STATUS(reader.pair(variables->rank, variables->ranks, known, &out.rank, &out.ranks));
  if (out.ranks == 1) return out;
  if (variables == &slurm) TRY_STATUS(read_machine_of_slurm(reader, &out));
  else TRY_STATUS(reader.pair(variables->local_rank, variables->local_ranks, variables->ranks, &out.local_rank, &out.local_ranks));
  if (out.local_ranks > out.ranks)
    return wrong_environment(reader.said(variables->local_ranks) + ", but " + reader.said(variables->ranks) +
                             ": this machine cannot have more processes than there are");
  return out;
}

std::string described(const RankPlace& place, int64_t machines) {
  std::string about = place.launcher;
  if (machines > 0) about += (about.empty() ? "" : ", ") + std::to_string(machines) + (machines == 1 ? " machine" : " machines");
  return "rank " + std::to_string(place.rank) + " of " + std::to_string(place.ranks) + (about.empty() ? "" : " (" + about + ")");
}

}  // namespace galley
