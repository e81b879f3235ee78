#include "host/commands/processes.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "host/base/log.hpp"
#include "host/exec/state.hpp"
#include "host/graph/axes.hpp"
#include "host/plugins/fault.hpp"
#include "host/plugins/library.hpp"
#include "host/ranks/heartbeat.hpp"

namespace galley {
namespace {

/// The processes, and the plugins whose library joins them.
struct Joined {
  std::unique_ptr<Plugins> plugins;
  std::unique_ptr<const Axes> axes;
  Target target;
  std::unique_ptr<Party> party;
  bool refused = false;  ///< rank 0 says why
  std::unique_ptr<Observer> steps;
  std::unique_ptr<Heartbeat> heartbeat;  ///< ends before the party
};
Joined joined;

Result<RankPlace> place_here() {
  return rank_place([](const char* name) { return std::getenv(name); });
}

/// Processes on one machine that their launcher has not bound to processors of their own share them, so that they do not wait for each
/// other. Threads that are made from now on keep to them.
void share_processors(const RankPlace& place) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int64_t all = CPU_COUNT(&allowed);
  if (place.local_ranks < 2 || all < 2 || all < sysconf(_SC_NPROCESSORS_ONLN)) return;
  const int64_t each = std::max<int64_t>(1, all / place.local_ranks), first = place.local_rank * each % all;
  cpu_set_t own;
  CPU_ZERO(&own);
  int64_t number = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    if (number >= first && number < first + each) CPU_SET(cpu, &own);
    ++number;
  }
  (void)sched_setaffinity(0, sizeof own, &own);
}

/// What can join processes on this device: one for each plugin, in the order in which plugins are found.
Result<std::vector<PartyOptions>> ways_to_join(const RankPlace& place, const StudyOptions& options, const std::filesystem::path& meeting) {
  const std::filesystem::path built_in[] = {options.installation.plugins};
  joined.plugins = Plugins::scan(plugin_search_path(built_in, options.plugin_path), [](const std::string&) {});
  std::string kind = options.device;  // whose kernels are run: an emulated GPU has those of another device
  if (const Registered<galley_device> device = joined.plugins->device(options.device)) {
    joined.target = TRY(describe_target(*device.table));
    kind = joined.target.device;
  }
  joined.axes = std::make_unique<const Axes>(place.ranks, place.rank);
  PartyOptions with;
  with.target = &joined.target;
  with.axes = joined.axes->view();
  with.meeting = meeting;
  std::vector<PartyOptions> ways;
  std::string problem;
  for (const auto& plugin : joined.plugins->all()) {
    if (plugin->manifest.ranks.empty()) continue;
    if (const Status loaded = joined.plugins->load(*plugin); !loaded) {
      problem = loaded.error().cause;
      continue;
    }
    with.caller = {plugin->manifest.id};
    for (const galley_ranks* table : plugin->library->ranks) {
      with.table = table;
      if (table->device == kind) ways.push_back(with);
    }
  }
  if (!ways.empty()) return ways;
  return recipe_error("no plugin joins processes on device '" + options.device + "'" + (problem.empty() ? "" : ": " + problem),
                      described(place, 0) + " was started by " + place.launcher + "; one process needs no such plugin");
}

void be_silent() {
  std::fflush(stdout);
  if (const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
}

}  // namespace

Result<Party*> join_processes(StudyOptions& options, const std::filesystem::path& meeting) {
  const RankPlace place = TRY(place_here());
  std::vector<PartyOptions> ways(1);  // a run of one process needs no plugin
  if (place.ranks > 1) ways = TRY(ways_to_join(place, options, meeting));
  // The first plugin that can: one may not know the launcher.
  std::optional<Error> first;
  for (const PartyOptions& way : ways) {
    Result<std::unique_ptr<Party>> opened = Party::open(place, way);
    if (opened) {
      joined.party = std::move(*opened);
      options.exchanges = way.caller.plugin;
      break;
    }
    if (!first) first = opened.error();
  }
  if (!joined.party) return *first;
  share_processors(place);  // the plugin has seen whether there is a processor for each
  if (place.rank > 0) {
    be_silent();
    options.warn = [](const std::string&) {};
  }
  options.lanes.ranks = place.ranks;
  options.lanes.rank = place.rank;
  return joined.party.get();
}

Status check_alone(const CommandSpec& command) {
  const RankPlace place = TRY(place_here());
  if (place.ranks == 1) return ok();
  joined.refused = place.rank > 0;
  const std::string started = std::to_string(place.ranks);
  const bool plans = std::ranges::any_of(command.flags, [](const FlagSpec& flag) { return flag.name == "--ranks"; });
  return recipe_error("galley " + command.name + " takes one process, and " + place.launcher + " has started " + started,
                      "start it without " + place.launcher + (plans ? ", with --ranks " + started : ""));
}

namespace {

/// The step that goes on, for the heartbeat.
class Steps final : public Observer {
 public:
  void enqueues(int64_t step) override {
    now = step;
    joined.heartbeat->at(step, "step " + std::to_string(step));
  }
  int64_t now = 0;
};

/// How long a process lives after it has learnt that another one is gone.
constexpr std::chrono::seconds kLast(3);

/// What starts as many processes again.
std::string launched_by(const RankPlace& place) {
  if (place.launcher == "torchrun") return "torchrun --no-python --nproc-per-node " + std::to_string(place.local_ranks);
  return (place.launcher == "Slurm" ? "srun" : place.launcher) + " -n " + std::to_string(place.ranks);
}

/// How to go on, once a process is gone.
std::string going_on(const std::filesystem::path& directory, const RankPlace& place) {
  const auto latest = find_latest(directory / "state");
  if (!latest || !*latest) return "no state has been saved: begin again, with save = { every = N } in the recipe";
  return "the state of step " + std::to_string(step_of(**latest)) + " is whole: " + launched_by(place) + " galley resume " +
         directory.string();
}

}  // namespace

Status look_after(const std::filesystem::path& directory, TrainOptions& options) {
  Party& party = *joined.party;
  if (party.alone()) {
    remove_heartbeats(directory);  // of a start that was killed
    return ok();
  }
  const auto tell = [&party, directory](const Alarm& alarm) {
    const bool ends = alarm.kind == Alarm::Kind::End;
    if (alarm.speaks)
      log(ends ? LogLevel::Error : LogLevel::Warning, alarm.text + (ends ? "\n  " + going_on(directory, party.place()) : ""));
    if (!ends) return;
    command_ends(static_cast<int>(Exit::Failed));
    // What the launcher does then may take half a minute, for it asks first those that wait and do not hear it.
    std::thread([] {
      std::this_thread::sleep_for(kLast);
      std::_Exit(static_cast<int>(Exit::Failed));
    }).detach();
    party.abort();
  };
  HeartbeatTimes times;
  // On one machine a launcher ends all within a second of the first that is gone: who that was has to be said before.
  if (party.machines() == 1) times.beat = std::chrono::milliseconds(200);
  auto steps = std::make_unique<Steps>();
  joined.heartbeat = TRY(Heartbeat::begin(directory, party, tell, times));
  TRY_STATUS(joined.heartbeat->check_shared(party));
  options.session.exchanging = [of = steps.get()](const std::string& what) { joined.heartbeat->at(of->now, what); };
  options.observers.push_back(steps.get());
  joined.steps = std::move(steps);
  return ok();
}

std::optional<std::string> error_prefix(const Error& error) {
  const Party* party = joined.party.get();
  if (joined.refused) return std::nullopt;
  if (!party || party->alone()) return "";
  if (party->ends_together()) return party->leads() ? std::optional<std::string>("") : std::nullopt;
  // A kernel that has found another process gone knows less about it than what that one said last.
  if (joined.heartbeat && !joined.party->check() && joined.heartbeat->verdict()) return std::nullopt;
  const bool told = joined.heartbeat && joined.heartbeat->failed(error);
  if (told && !party->leads()) return std::nullopt;  // rank 0 shows it
  return party->name(party->place().rank) + ": ";
}

void leave_processes() {
  if (joined.heartbeat && joined.party->ends_together()) joined.heartbeat->ended();
  joined.heartbeat.reset();
  joined.party.reset();
  joined.plugins.reset();
}

}  // namespace galley
