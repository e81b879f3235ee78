// The processes of a run, joined by sockets: those of process 0 lead to all others, that of another one to process 0.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "galley/cpp/plugin.hpp"
#include "galley/ranks.h"

namespace sockets {

class Ranks {
 public:
  Ranks(int64_t rank, int64_t ranks) : rank_(rank), sockets_(static_cast<size_t>(rank == 0 ? ranks : 1), -1), ranks_(ranks) {}
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    for (const int socket : sockets_)
      if (socket >= 0) ::close(socket);
  }
  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }

  /// Process 0: somebody is there.
  void greet(int socket) {
    int64_t who = 0;
    take(socket, &who, sizeof who, -1);
    sockets_[static_cast<size_t>(who)] = socket;
  }
  /// Another process: process 0 is there.
  void meet(int socket) {
    sockets_[0] = socket;
    give(socket, &rank_, sizeof rank_, 0);
  }

  /// all[r * bytes] … is what process r gave.
  void exchange(const void* mine, int64_t bytes, void* all) {
    auto* const whole = static_cast<char*>(all);
    std::memmove(whole + rank_ * bytes, mine, static_cast<size_t>(bytes));
    if (rank_ > 0) {
      give(sockets_[0], whole + rank_ * bytes, bytes, 0);
      take(sockets_[0], whole, ranks_ * bytes, 0);
      return;
    }
    for (int64_t r = 1; r < ranks_; ++r) take(sockets_[static_cast<size_t>(r)], whole + r * bytes, bytes, r);
    for (int64_t r = 1; r < ranks_; ++r) give(sockets_[static_cast<size_t>(r)], whole, ranks_ * bytes, r);
  }

  /// The process that has closed its socket; -1: none. [thread-safe]
  int64_t gone() const { return gone_; }
  /// Ends all waiting. [thread-safe]
  void hang_up() const {
    for (const int socket : sockets_)
      if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
  }

 private:
  [[noreturn]] void lose(int64_t other) {
    gone_ = other;
    throw galley::sdk::Failure(GALLEY_LOST, "process " + std::to_string(other) + " has closed its socket");
  }
  void give(int socket, const void* from, int64_t bytes, int64_t other) {
    for (int64_t done = 0; done < bytes;) {
      const ssize_t n = ::send(socket, static_cast<const char*>(from) + done, static_cast<size_t>(bytes - done), MSG_NOSIGNAL);
      if (n <= 0) lose(other);
      done += n;
    }
  }
  void take(int socket, void* to, int64_t bytes, int64_t other) {
    for (int64_t done = 0; done < bytes;) {
      const ssize_t n = ::recv(socket, static_cast<char*>(to) + done, static_cast<size_t>(bytes - done), 0);
      if (n <= 0) lose(other);
      done += n;
    }
  }

  int64_t rank_;
  std::vector<int> sockets_;
  int64_t ranks_;
  std::atomic<int64_t> gone_ = -1;
};

}  // namespace sockets
