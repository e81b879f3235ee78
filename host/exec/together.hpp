// What the processes of a run do together about the tensors of which each has a part. A run of one process does nothing of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "host/base/result.hpp"

namespace galley {

/// All processes call the same functions in the same order.
struct Together {
  bool leads = true;  ///< this process does what is done once
  /// Returns the error of the first process that has one, as that of all.
  std::function<Status(Status mine)> first_error = [](Status mine) { return mine; };
  /// Adds to each number those of the other processes, modulo 2^64.
  std::function<Status(std::span<uint64_t> numbers)> add_up = [](std::span<uint64_t>) { return ok(); };
};

}  // namespace galley
