// How tensors are divided between the processes of a run: the pass `shard` decides it, `place` gives each process its parts.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "host/graph/graph.hpp"

namespace galley {

/// A range of a tensor's numbers.
struct NumberRange {
  int64_t first = 0, count = 0;
};

/// What updates write has parts of whole blocks of so many numbers: those by which sums of squares are made (models/ops/sums).
inline constexpr int64_t kCutBlock = 16384;

/// Where the parts of a tensor end, of n processes along an axis. Part j is that of process (j + start) mod n, as ops of exchanges count
/// (galley/cpp/exchange.hpp).
struct Cut {
  std::vector<int64_t> ends;  ///< in numbers of the tensor, one for each process; parts may be empty
  int64_t start = 0;
  int64_t rank = 0;   ///< this process, along the axis
  bool rows = false;  ///< parts have whole rows

  NumberRange part(int64_t of_rank) const {
    const auto n = static_cast<int64_t>(ends.size());
    const auto j = static_cast<size_t>((of_rank + n - start % n) % n);
    const int64_t first = j ? ends[j - 1] : 0;
    return {first, ends[j] - first};
  }
  NumberRange own() const { return part(rank); }
  /// Returns whether one process has all of the tensor.
  bool owned() const {
    return std::ranges::all_of(ends, [&](int64_t end) { return end == 0 || end == ends.back(); });
  }
};

/// What the processes have of tensors, and what of the update each of them computes.
struct Cuts {
  /// Parameters, gradients, states and copies of parameters of which this process has a part. The others are whole on each process.
  std::map<galley_tensor, Cut> tensors;
  /// Nodes of the update that compute with the own part of what they read and write by rows.
  std::map<galley_node, Cut> nodes;
  /// What is whole on each process, and of which the update writes the own part: then parts are exchanged.
  std::map<galley_tensor, Cut> gathered;
  /// Parameters of which parts were claimed and that stay whole, with the reason.
  std::map<galley_tensor, std::string> whole;

  const Cut* of(galley_tensor t) const { return find(tensors, t); }
  const Cut* of_node(galley_node n) const { return find(nodes, n); }

 private:
  static const Cut* find(const std::map<uint64_t, Cut>& among, uint64_t id) {
    const auto at = among.find(id);
    return at == among.end() ? nullptr : &at->second;
  }
};

}  // namespace galley
