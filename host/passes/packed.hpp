// Files that hold a tensor as its format stores it: each component under a name that follows from the tensor's.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "host/base/tensor_files.hpp"
#include "host/graph/graph.hpp"
#include "host/passes/place/components.hpp"

namespace galley {

class PackedFiles {
 public:
  /// Whether the file of `t` holds its components, and not its numbers. Only some of them, or another shape or dtype than the format makes,
  /// is exit code Recipe with file and component. Where a component has the tensor's own name, it is taken for the numbers unless its dtype
  /// cannot be theirs, or the file holds every component as the format makes it. A folder without weights, which can be
  /// planned all the same, is taken to hold numbers. Reads headers only.
  Result<bool> hold(const GraphTensor& t, std::span<const Component> components);

 private:
  std::map<std::string, tensor_files::Reader> readers_;
};

/// The names that a tensor may have in its file, the first one first.
std::vector<std::string> source_names(const GraphTensor& t);

}  // namespace galley
