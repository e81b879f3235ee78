// Proves that the processes of a run fit together: whoever waits in an exchange waits for others that come to the same one, with parts that
// make a whole. A library that joins processes hangs where they do not.
#pragma once

#include <span>

#include "host/base/result.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// Checks programs of one run, each of another process, in the order of ranks:
///   - each segment has the same exchanges in the same order: op, name, micro-batches that run it, dtype, ends of the parts;
///   - the same nodes have made what an exchange takes: no process gives others what it has not updated, or what lacks a contribution;
///   - what an exchange takes as the own part is that part of the tensor, or has its size;
///   - what the host decides for the run is the same: lanes, micro-batches, scalars that it writes;
///   - if `all` processes are there, the parts that they have of a tensor are the whole, each number once.
/// An error says what differs and where.
Status congruent(std::span<const Program* const> programs, bool all);

}  // namespace galley
