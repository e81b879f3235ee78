// What differs between processes that compute the same micro-batches: the parts of what strategies have divided (divide, rewrite.h), and all
// that is made from them, until an exchange along their axis makes it the same again.
#pragma once

#include <vector>

#include "host/passes/compilation.hpp"

namespace galley {

class Differing {
 public:
  /// Knows the parameters and states that are there, and constants that are made from them. `c` outlives it.
  explicit Differing(const Compilation& c);
  bool operator()(galley_tensor t) const { return t < differs_.size() && differs_[t]; }
  /// Returns whether a node reads what differs.
  bool reads(const GraphNode& node) const;
  /// Returns whether a node reads or makes what differs, or exchanges along the axis. Must be called after add().
  bool works_on_parts(const GraphNode& node) const;
  /// Takes a node into account. Nodes come in the order of the run.
  void add(const GraphNode& node);

 private:
  bool along_axis(const GraphNode& node) const;
  void set(galley_tensor t);

  const Compilation& c_;
  std::vector<bool> differs_;
};

}  // namespace galley
