// The axes of a run's processes, for plugins. Those that compute the same micro-batches are neighbours, on the axis that the recipe names, and
// their groups are on the axis "data". Without such groups, the neighbours that a link of the target joins are on one with the link's name.
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
  /// `together`: so many processes compute the same micro-batches, and the run has a multiple of them. `name`: their axis; "": there is none.
  Axes(int64_t ranks, int64_t rank, int64_t together = 1, const std::string& name = "") : ranks_(ranks), rank_(rank) {
    add("data", ranks / together, together);
    if (!name.empty()) add(name, together);
  }
  Axes(const Axes&) = delete;
  Axes& operator=(const Axes&) = delete;
  /// Adds the axis of so many processes, `stride` apart, of which the run has a multiple. A name that is there stays as it is.
  void add(const std::string& name, int64_t ranks, int64_t stride = 1) {
    if (find(name)) return;
    axes_.push_back({sizeof(galley_axis), 1, names_.emplace_back(name).c_str(), ranks, rank_ / stride % ranks, stride, 0});
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
