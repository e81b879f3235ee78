// The axes of a run's processes, for plugins: all of them are on the axis "data", and the neighbours that a link of the target joins are on
// one with the link's name.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "galley/graph.h"

namespace galley {

class Axes {
 public:
  Axes(int64_t ranks, int64_t rank) : ranks_(ranks), rank_(rank) { add("data", ranks); }
  Axes(const Axes&) = delete;
  Axes& operator=(const Axes&) = delete;
  /// Adds the axis of so many neighbours, of which the run has a multiple: 0 … n − 1, n … 2 n − 1, … A name that is there stays as it is.
  void add(const std::string& name, int64_t neighbours) {
    if (find(name)) return;
    axes_.push_back({sizeof(galley_axis), 1, names_.emplace_back(name).c_str(), neighbours, rank_ % neighbours, 1, 0});
    list_.push_back(&axes_.back());
  }
  /// Returns them as galley_run_info shows them.
  const std::vector<const galley_axis*>& view() const { return list_; }
  /// Returns the axis of that name; null: there is none.
  const galley_axis* find(std::string_view name) const {
    for (const galley_axis* axis : list_)
      if (axis->name == name) return axis;
    return nullptr;
  }
  int64_t ranks() const { return ranks_; }
  int64_t rank() const { return rank_; }

 private:
  const int64_t ranks_, rank_;
  std::deque<std::string> names_;
  std::deque<galley_axis> axes_;
  std::vector<const galley_axis*> list_;
};

}  // namespace galley
