// Names the axes of a run's processes, for plugins: all of them are on the axis "data".
#pragma once

#include <span>
#include <string_view>

#include "galley/graph.h"

namespace galley {

class Axes {
 public:
  Axes(int64_t ranks, int64_t rank) : data_{sizeof(galley_axis), 1, "data", ranks, rank, 1, 0} {}
  Axes(const Axes&) = delete;
  Axes& operator=(const Axes&) = delete;
  /// Returns them as galley_run_info shows them.
  std::span<const galley_axis* const> view() const { return {list_, 1}; }
  int64_t ranks() const { return data_.ranks; }
  int64_t rank() const { return data_.rank; }

 private:
  const galley_axis data_;
  const galley_axis* const list_[1] = {&data_};
};

inline bool has_axis(std::string_view name) { return name == "data"; }

}  // namespace galley
