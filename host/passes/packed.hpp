// Finds out whether a file holds a tensor as its format stores it: each component under a name that follows from the tensor's name.
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
  /// Returns whether the file of `t` holds its components, and not its numbers. A file with only some of them, or with another shape or
  /// dtype than the format makes, is an error (exit code Recipe) that names file and component. A component with the tensor's own name
  /// counts as the numbers, unless its dtype cannot be theirs or the file holds every component as the format makes it. A folder without
  /// weights, which can be planned all the same, counts as one with numbers. Reads headers only.
  Result<bool> hold(const GraphTensor& t, std::span<const Component> components);

 private:
  std::map<std::string, tensor_files::Reader> readers_;
};

/// Returns the names that a tensor may have in its file, the first choice first.
std::vector<std::string> source_names(const GraphTensor& t);

}  // namespace galley
