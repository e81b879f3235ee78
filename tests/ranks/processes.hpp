// Several processes for a test, and a galley_ranks over memory that they share: what a plugin does over a network.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "galley/ranks.h"
#include "host/ranks/party.hpp"

namespace galley::test {

/// Runs `body` in n processes of its own and returns what each has returned, by rank; "signal 9" of one that was killed. `meanwhile` runs
/// here.
std::vector<std::string> in_processes(int64_t n, const std::function<std::string(int64_t rank)>& body,
                                      const std::function<void(const std::vector<pid_t>&)>& meanwhile = {});

/// To be made before the processes are.
class SharedRanks {
 public:
  /// `really`: how many come, if that is another number.
  explicit SharedRanks(int64_t ranks, int64_t really = 0);
  SharedRanks(const SharedRanks&) = delete;
  SharedRanks& operator=(const SharedRanks&) = delete;
  ~SharedRanks();

  /// In a process: opens its party.
  Result<std::unique_ptr<Party>> open(int64_t rank) const;
  /// In a process: as if its connections were closed.
  void leave(int64_t rank) const;
  /// In a process: the next exchange fails on it, and is another plugin's mistake.
  void spoil() const;
  int64_t closed() const;
  int64_t aborted() const;

  struct Room;

 private:
  Room* room_;
  int64_t ranks_;
};

}  // namespace galley::test
