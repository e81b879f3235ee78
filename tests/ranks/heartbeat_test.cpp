// Who dies, stands still or fails is named to all others: processes that do, and what the others are told.
#include "host/ranks/heartbeat.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "host/base/file.hpp"
#include "processes.hpp"
#include "tests/base/folder.hpp"

namespace galley {
namespace {

using test::in_processes;
using test::SharedRanks;
using Texts = std::vector<std::string>;
using namespace std::chrono_literals;

constexpr HeartbeatTimes quick = {30ms, 10s, 20s, 30s};
constexpr HeartbeatTimes impatient = {30ms, 400ms, 20s, 30s}, hasty = {30ms, 200ms, 20s, 30s};

/// What a process has been told: "warns: …", "shows: …" where it is the one that speaks, "hears: …".
class Told {
 public:
  Heartbeat::Tell tell() {
    return [this](const Alarm& alarm) {
      const std::lock_guard lock(mutex_);
      text_ += alarm.kind == Alarm::Kind::Warning ? "warns" : alarm.speaks ? "shows" : "hears";
      text_ += " of " + std::to_string(alarm.rank) + ": " + alarm.text + "\n";
    };
  }
  /// With the names of the machine and the processes as in a message of a person.
  std::string text() const {
    const std::lock_guard lock(mutex_);
    std::string out = text_;
    const std::string name = "machine " + machine_name();
    for (size_t at; (at = out.find(name)) != out.npos;) out.replace(at, name.size(), "here");
    return std::regex_replace(out, std::regex("process [0-9]+"), "process N");
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

struct Rank {
  Told told;
  std::unique_ptr<Heartbeat> beat;  // its thread tells

  Rank(const Folder& folder, int64_t rank, int64_t ranks, HeartbeatTimes times = quick) {
    auto begun = Heartbeat::begin(folder.path(), RankPlace{rank, ranks, rank, ranks, "test", "test"}, "start", told.tell(), times);
    if (begun) beat = std::move(begun).value();
  }
  /// Waits for the others to be there, so that tests do not depend on how fast processes start.
  void wait_for(const Folder& folder, int64_t ranks) const {
    for (int64_t rank = 0; rank < ranks; ++rank)
      while (!std::filesystem::exists(folder / ".ranks/start" / std::to_string(rank))) std::this_thread::sleep_for(5ms);
    std::this_thread::sleep_for(quick.beat * 3);
  }
};

/// What is below the run's directory.
std::string left_in(const Folder& folder) {
  std::string out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    out += entry.path().lexically_relative(folder.path()).string() + " ";
  return out;
}

TEST(Heartbeat, TheKilledRankIsNamedToAll) {
  const Folder folder;
  const auto begin = std::chrono::steady_clock::now();
  const Texts seen = in_processes(4, [&](int64_t rank) {
    Rank mine(folder, rank, 4);
    mine.beat->at(3, "gather w");
    mine.wait_for(folder, 4);
    if (rank == 1) {
      std::this_thread::sleep_for(quick.beat * 3);
      ::kill(::getpid(), SIGKILL);
    }
    for (; rank % 2 == 0 && mine.told.text().empty(); std::this_thread::sleep_for(5ms)) mine.beat->at(3, "compute");  // these do not wait
    static_cast<void>(mine.beat->verdict());
    mine.beat->ended();
    return mine.told.text();
  });
  const std::string text = "of 1: rank 1 (here, process N) died; 1 s ago it was in step 3 at 'gather w'; rank 3 waited\n";
  EXPECT_EQ(seen, (Texts{"shows " + text, "signal 9", "hears " + text, "hears " + text}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3s);
  EXPECT_EQ(left_in(folder), "");
}

TEST(Heartbeat, OfRankZeroTheNextOneSpeaks) {
  const Folder folder;
  const Texts seen = in_processes(
      4,
      [&](int64_t rank) {
        Rank mine(folder, rank, 4);
        mine.wait_for(folder, 4);
        if (rank == 3) folder.put("begun", "");
        static_cast<void>(mine.beat->verdict());
        mine.beat->ended();
        return mine.told.text();
      },
      [&](const std::vector<pid_t>& processes) {
        while (!std::filesystem::exists(folder / "begun")) std::this_thread::sleep_for(5ms);
        for (const size_t rank : {0u, 1u}) ::kill(processes[rank], SIGKILL);
      });
  const std::string text =
      "of 0: rank 0 (here, process N) died; 1 s ago it was before the first step; rank 1 is gone, too; ranks 2 and 3 waited\n";
  EXPECT_EQ(seen, (Texts{"signal 9", "signal 9", "shows " + text, "hears " + text}));
  EXPECT_EQ(left_in(folder), "begun ");
}

TEST(Heartbeat, AnErrorOfOneRankReachesAll) {
  const Folder folder;
  const auto run = [&](int64_t failing) {
    return in_processes(3, [&](int64_t rank) {
      Rank mine(folder, rank, 3);
      mine.wait_for(folder, 3);
      std::string out;
      if (rank == failing) {
        out = mine.beat->failed(run_error("cannot write 'a\x1b': No space left on device")) ? "is shown\n" : "shows it itself\n";
      } else {
        const auto verdict = mine.beat->verdict();
        out = verdict && verdict->kind == Alarm::Kind::End && verdict->rank == failing ? "" : "another verdict\n";
        // What it comes to by this is no error of its own.
        out += mine.beat->failed(run_error("another process of the run is gone")) ? "is shown\n" : "shows it itself\n";
      }
      return out + mine.told.text();
    });
  };
  const auto text = [](int64_t rank) {
    return std::to_string(rank) + ": rank " + std::to_string(rank) + " (here, process N): cannot write 'a\\x1b': No space left on device\n";
  };
  EXPECT_EQ(run(2), (Texts{"is shown\nshows of " + text(2), "is shown\nhears of " + text(2), "is shown\n"}));
  EXPECT_EQ(left_in(folder), "");
  // Rank 0 shows its own.
  EXPECT_EQ(run(0), (Texts{"shows it itself\n", "is shown\nhears of " + text(0), "is shown\nhears of " + text(0)}));
  EXPECT_EQ(left_in(folder), "");
}

TEST(Heartbeat, WhoLeavesWithoutAWordHasFailed) {
  const Folder folder;
  const Texts seen = in_processes(2, [&](int64_t rank) {
    Rank mine(folder, rank, 2);
    mine.wait_for(folder, 2);
    if (rank == 0) static_cast<void>(mine.beat->verdict());
    mine.beat.reset();
    return mine.told.text();
  });
  EXPECT_EQ(seen, (Texts{"shows of 1: rank 1 (here, process N): it has left the run\n", ""}));
}

TEST(Heartbeat, AStoppedRankGivesNoSign) {
  const Folder folder;
  const Texts seen = in_processes(
      3,
      [&](int64_t rank) {
        Rank mine(folder, rank, 3, impatient);
        mine.beat->at(7, rank == 1 ? "read the data" : "gather w");
        mine.wait_for(folder, 3);
        if (rank == 1) ::kill(::getpid(), SIGSTOP);
        static_cast<void>(mine.beat->verdict());
        if (rank == 0) folder.put("judged", "");
        mine.beat->ended();
        return mine.told.text();
      },
      [&](const std::vector<pid_t>& processes) {
        while (!std::filesystem::exists(folder / "judged")) std::this_thread::sleep_for(5ms);
        ::kill(processes[1], SIGKILL);
      });
  const std::string text =
      "of 1: rank 1 (here, process N) gives no sign any more; 1 s ago it was in step 7 at 'read the data': it is stopped, or its machine "
      "or "
      "its network is gone; ranks 0 and 2 waited\n";
  EXPECT_EQ(seen, (Texts{"shows " + text, "signal 9", "hears " + text}));
}

// As a machine that sleeps, or a file system that does not answer for a while: nobody was there to beat.
TEST(Heartbeat, NobodyIsCondemnedForATimeInWhichAllWereStopped) {
  const Folder folder;
  const Texts seen = in_processes(
      2,
      [&](int64_t rank) {
        Rank mine(folder, rank, 2, impatient);
        mine.wait_for(folder, 2);
        std::this_thread::sleep_for(800ms);
        mine.beat->ended();
        return mine.told.text();
      },
      [&](const std::vector<pid_t>& processes) {
        while (!std::filesystem::exists(folder / ".ranks/start/0") || !std::filesystem::exists(folder / ".ranks/start/1"))
          std::this_thread::sleep_for(5ms);
        std::this_thread::sleep_for(100ms);
        // Rank 0 has seen the last beat of rank 1, and is back before it.
        ::kill(processes[1], SIGSTOP);
        std::this_thread::sleep_for(50ms);
        ::kill(processes[0], SIGSTOP);
        std::this_thread::sleep_for(impatient.silence);
        ::kill(processes[0], SIGCONT);
        std::this_thread::sleep_for(50ms);
        ::kill(processes[1], SIGCONT);
      });
  EXPECT_EQ(seen, (Texts{"", ""}));
  EXPECT_EQ(left_in(folder), "");
}

TEST(Heartbeat, AHaltIsAWarningAndThenTheEnd) {
  const Folder folder;
  const Texts seen = in_processes(3, [&](int64_t rank) {
    Rank mine(folder, rank, 3, {30ms, 10s, 300ms, 700ms});
    mine.wait_for(folder, 3);
    // The same place again is a move: it comes round. So there is no warning before this ends.
    for (int i = 0; i < 20; ++i) {
      mine.beat->at(12, "gather w");
      std::this_thread::sleep_for(20ms);
    }
    const std::string before = mine.told.text();
    mine.beat->at(12, rank == 2 ? "read the data" : "gather w");
    static_cast<void>(mine.beat->verdict());
    mine.beat->ended();
    return before + "-\n" + mine.told.text();
  });
  const std::string places = "ranks 0 and 1 in step 12 at 'gather w'; rank 2 in step 12 at 'read the data'\n";
  EXPECT_EQ(seen[0], "-\nwarns of -1: no rank has moved for 1 s: " + places + "shows of -1: no rank has moved for 1 s: " + places);
  EXPECT_EQ(seen[1], "-\nhears of -1: no rank has moved for 1 s: " + places);
  EXPECT_EQ(seen[2], seen[1]);
}

TEST(Heartbeat, AnOrderlyEndLeavesNothing) {
  for (const int64_t last : {0, 2}) {
    const Folder folder;
    folder.put("run.toml", "x");
    const Texts seen = in_processes(3, [&](int64_t rank) {
      Rank mine(folder, rank, 3);
      mine.wait_for(folder, 3);
      if (rank == last) std::this_thread::sleep_for(100ms);  // long enough that the others are gone
      mine.beat->ended();
      mine.beat->ended();
      return mine.told.text() + (mine.beat->failed(run_error("late")) ? "shown" : "");
    });
    EXPECT_EQ(seen, (Texts{"", "", ""}));
    EXPECT_EQ(left_in(folder), "run.toml ");
  }
}

TEST(Heartbeat, WhatAnEarlierStartHasLeftIsRemoved) {
  const Folder folder, other;
  other.put("precious", "x");
  folder.put(".ranks/earlier/0", "x");
  folder.put(".ranks/earlier/1", "x");
  std::filesystem::create_directory_symlink(other.path(), folder / ".ranks/link");
  {
    const Rank one(folder, 1, 2);  // it may come before rank 0 does
    const Rank zero(folder, 0, 2);
    Texts left;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) left.push_back(entry.path().filename());
    std::ranges::sort(left);
    EXPECT_EQ(left, (Texts{".ranks", "0", "1", "start"}));
    zero.beat->ended();
    one.beat->ended();
  }
  EXPECT_EQ(left_in(folder), "");

  folder.put(".ranks/earlier/0", "x");
  remove_heartbeats(folder.path());
  EXPECT_EQ(left_in(folder), "");
  EXPECT_EQ(left_in(other), "precious ");
}

TEST(Heartbeat, ALinkIsRefused) {
  const Folder folder, other;
  other.put("earlier/precious", "x");
  std::filesystem::create_directory_symlink(other.path(), folder / ".ranks");
  remove_heartbeats(folder.path());
  const auto begun = Heartbeat::begin(folder.path(), RankPlace{}, "start", {}, quick);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().cause, (folder / ".ranks").string() + " is a link");
  EXPECT_EQ(left_in(other), "earlier earlier/precious ");
}

// A file that is cut, or read while it is written, says nothing: its rank is silent.
TEST(Heartbeat, FilesThatAreNotWholeAreNotBelieved) {
  const Folder folder;
  Rank mine(folder, 0, 3, hasty);
  std::string bytes = read_text(folder / ".ranks/start/0").value();
  ASSERT_EQ(bytes.size(), 640u);
  bytes[100] ^= 1;
  folder.put(".ranks/start/1", bytes);
  folder.put(".ranks/start/2", "x");
  auto verdict = mine.beat->verdict();
  for (int tries = 0; !verdict && tries < 10; ++tries) verdict = mine.beat->verdict();  // a machine may be loaded
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->text, "rank 1 gives no sign in " + (folder / ".ranks/start").string() +
                               ": it has ended, or this is another directory there; rank 0 waited");
}

TEST(Heartbeat, AMachineThatHasAnotherDirectoryIsNamed) {
  const Folder shared, elsewhere;
  const SharedRanks ranks(3);
  const auto run = [&](const Folder& of_the_last) {
    return in_processes(3, [&](int64_t rank) {
      const auto party = ranks.open(rank).value();
      const auto beat = Heartbeat::begin((rank == 2 ? of_the_last : shared).path(), *party, [](const Alarm&) {}, hasty);
      const Status same = (*beat)->check_shared(*party);
      (*beat)->ended();
      party->end();
      return same ? "shared" : same.error().cause + " | " + same.error().hint;
    });
  };
  EXPECT_EQ(run(shared), (Texts{"shared", "shared", "shared"}));
  EXPECT_EQ(left_in(shared), "");
  const std::string text = shared.path().string() + " is another directory on machine " + machine_name() +
                           ": what rank 2 wrote there is not here | name a directory that all machines of the run share";
  EXPECT_EQ(run(elsewhere), (Texts{text, text, text}));
}

TEST(MovingPlace, IsReadWhole) {
  MovingPlace place;
  EXPECT_EQ(place.get().text, "");
  const std::string longest(MovingPlace::most_bytes, 'z');
  place.set(5, longest + "beyond");
  EXPECT_EQ(place.get().text, longest);
  EXPECT_EQ(place.get().step, 5);
  EXPECT_EQ(place.get().moves, 1u);
  std::atomic<bool> stops = false;
  std::thread writer([&] {
    for (int64_t step = 1; !stops; ++step)
      place.set(step, std::string(static_cast<size_t>(step % 150), static_cast<char>('a' + step % 26)));
  });
  for (int i = 0; i < 2000; ++i) {
    const MovingPlace::Seen seen = place.get();
    if (seen.moves == 1) continue;
    ASSERT_EQ(static_cast<int64_t>(seen.moves), seen.step + 1);
    ASSERT_EQ(seen.text, std::string(static_cast<size_t>(seen.step % 150), static_cast<char>('a' + seen.step % 26)));
  }
  stops = true;
  writer.join();
}

}  // namespace
}  // namespace galley
