// Names who is gone. Each rank says every second, in a file of its own below the run's directory, that it is there and where it is; whoever
// dies, stands still or fails is then named to all others, which would wait for it without an end.
//
// The files are DIR/.ranks/START/RANK, of 640 bytes each, written over in place. Each beat opens and closes its file: on NFS that is when
// others see it. Rank 0 reads those of all; the others read rank 0's, which has its verdict, and those of all once rank 0 is silent. So
// there are two small files a rank and second, for any number of ranks.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "host/base/result.hpp"
#include "host/ranks/launcher.hpp"
#include "host/ranks/party.hpp"

namespace galley {

struct HeartbeatTimes {
  using Time = std::chrono::milliseconds;
  Time beat{1000};
  Time silence{10'000};    ///< after it a rank that does not beat is gone
  Time warning{60'000};    ///< after it there is a warning that no rank moves
  Time patience{600'000};  ///< after it that is the end
};

/// What there is to say of the run's processes.
struct Alarm {
  enum class Kind { Warning, End };
  Kind kind = Kind::End;
  int64_t rank = -1;    ///< who has died, gives no sign or has failed; -1: nobody, all stand still
  std::string text;     ///< "rank 1 (machine b, process 8123) died; 1 s ago it was in step 120 at 'gather w'; ranks 0, 2 and 3 waited"
  bool speaks = false;  ///< this rank is the one that shows it: others have the same
};

/// Where the main thread is: a text that another thread may read meanwhile. Writing takes some 30 ns, and neither a lock nor a call.
class MovingPlace {
 public:
  static constexpr size_t most_bytes = 160;
  /// One thread.
  void set(int64_t step, std::string_view text) noexcept;
  struct Seen {
    uint64_t moves = 0;  ///< how often it has been set
    int64_t step = 0;
    std::string text;
  };
  /// Another thread. What is being written at this moment counts once it is whole.
  Seen get() const;

 private:
  std::atomic<uint64_t> turn_ = 0;  // odd: it is being written
  std::atomic<int64_t> step_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  std::array<std::atomic<uint64_t>, most_bytes / 8> words_ = {};
};

/// One rank's. It is made when all ranks are there (Party::open), and ended before the Party is. Its thread has all signals blocked.
class Heartbeat {
 public:
  /// Is called by the heartbeat's thread, for each warning and for the first end only. It may call Party::abort() once the text has been
  /// shown, and nothing of the heartbeat.
  using Tell = std::function<void(const Alarm&)>;

  /// The first beat is there when it returns. `directory` is the run's. Rank 0 removes what an earlier start has left there.
  static Result<std::unique_ptr<Heartbeat>> begin(const std::filesystem::path& directory, const Party& party, Tell tell,
                                                  HeartbeatTimes times = {});
  /// As begin(), without a party: `start` is a text of this start alone, fit for a file's name.
  static Result<std::unique_ptr<Heartbeat>> begin(const std::filesystem::path& directory, const RankPlace& place, const std::string& start,
                                                  Tell tell, HeartbeatTimes times = {});
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  /// Without ended() or failed(), the others will read that this rank has left.
  ~Heartbeat();

  /// Says where the main thread is: `step` counts from 1, and is 0 before the first. To be called often: ranks that say nothing new for
  /// `patience` have come to a halt.
  void at(int64_t step, std::string_view place) noexcept { place_.set(step, place); }

  /// All ranks call it: whether rank 0 sees what all have written. If not, the error (exit code Recipe) names who has another directory.
  Status check_shared(Party& party) const;

  /// Returns the verdict, once there is one; waits no longer than the silence and eight beats. For a rank that has found another one gone.
  std::optional<Alarm> verdict() const;

  /// Ends without an error. The last rank to end removes the files.
  void ended() { leave(State::Ended, ""); }
  /// Tells the others this rank's error, which ends them too: for errors that they do not have (after Party::first_error all have it).
  /// Returns whether rank 0 has taken note of it, and shows it; waits for that no longer than the silence. So it does after a verdict, from
  /// which such an error follows. Rank 0 shows its own.
  bool failed(const Error& error);

 private:
  enum class State : uint32_t { Running = 1, Ended, Failed };
  struct Slot;   // a file
  struct Other;  // what this rank knows of one

  Heartbeat(std::filesystem::path folder, const RankPlace& place, Tell tell, HeartbeatTimes times);
  Status start();
  void run();
  Status write();
  std::optional<Slot> read(int64_t rank) const;
  void look();
  void look_at(int64_t rank);
  bool silent(const Other& other) const;
  bool is_over(int64_t rank) const;
  std::string about(int64_t rank, const Slot& slot) const;
  std::optional<Alarm> judge() const;
  std::optional<Alarm> judge(int64_t rank) const;
  bool speaks() const;
  std::optional<Alarm> halt();
  void leave(State state, const std::string& text);

  using Clock = std::chrono::steady_clock;
  const std::filesystem::path folder_;
  const RankPlace place_of_;
  const Tell tell_;
  const HeartbeatTimes times_;
  const uint64_t machine_;  // where a process's number means the same process
  MovingPlace place_;

  mutable std::mutex mutex_;  // of all that follows
  mutable std::condition_variable changed_;
  std::unique_ptr<Slot> own_;
  std::vector<Other> others_;  // by rank, this one too
  std::optional<Alarm> verdict_;
  Clock::time_point looked_, wide_;  // wide_: since when this rank reads those of all
  bool warned_ = false, is_wide_ = false, stops_ = false;
  std::thread thread_;
};

/// Removes what starts of several processes have left in a run's directory, but for the one of that name. Whoever begins to work in the
/// directory calls it, or begins a Heartbeat as rank 0.
void remove_heartbeats(const std::filesystem::path& directory, const std::string& but = {});

}  // namespace galley
