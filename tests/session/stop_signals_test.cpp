#include "host/commands/stop_signals.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string>
#include <thread>

namespace galley {
namespace {

/// Keeps what is written to stderr meanwhile.
class Stderr {
 public:
  Stderr() : before_(dup(STDERR_FILENO)) {
    if (pipe2(ends_, O_CLOEXEC | O_NONBLOCK) == 0) dup2(ends_[1], STDERR_FILENO);
  }
  ~Stderr() {
    dup2(before_, STDERR_FILENO);
    for (int end : {ends_[0], ends_[1], before_}) close(end);
  }
  std::string text() const {
    char buffer[512];
    const ssize_t size = read(ends_[0], buffer, sizeof buffer);
    return {buffer, static_cast<size_t>(std::max<ssize_t>(size, 0))};
  }

 private:
  int before_;
  int ends_[2] = {-1, -1};
};

TEST(StopSignals, TheFirstIsAnswered) {
  Stderr written;
  StopSignals signals;
  signals.install();
  EXPECT_FALSE(StopSignals::asked());
  ::raise(SIGTERM);
  EXPECT_TRUE(StopSignals::asked());
  EXPECT_EQ(written.text(), "stopping as soon as it is safe; the same signal again ends at once\n");
  ::raise(SIGINT);  // within a moment: as one
  EXPECT_EQ(written.text(), "");
}

TEST(StopSignals, ARunIsToldOnce) {
  Stderr written;
  StopSignals signals;
  signals.install();
  EXPECT_FALSE(StopSignals::stops(0));
  EXPECT_FALSE(StopSignals::stops(7));
  ::raise(SIGINT);
  EXPECT_TRUE(StopSignals::stops(8));
  EXPECT_TRUE(StopSignals::stops(9));
  EXPECT_EQ(written.text(), "stopping after step 7; Ctrl-C again ends at once\n");
}

TEST(StopSignals, TheAnswerIsTheStepAfterWhichTheRunStops) {
  for (int turn = 0; turn < 200; ++turn) {
    Stderr written;
    StopSignals signals;
    signals.install();
    std::atomic<int64_t> step = 0;
    std::thread run([&] {
      while (!StopSignals::stops(step + 1)) ++step;
    });
    while (step < turn * 10 + 1) std::this_thread::yield();
    pthread_kill(turn % 2 == 0 ? pthread_self() : run.native_handle(), SIGTERM);
    run.join();
    ASSERT_EQ(written.text(), "stopping after step " + std::to_string(step) + "; the same signal again ends at once\n");
  }
}

}  // namespace
}  // namespace galley
