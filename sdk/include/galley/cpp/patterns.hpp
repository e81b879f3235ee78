// Patterns of names of parameters, as options give them. Header-only.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "galley/cpp/glob.hpp"
#include "galley/cpp/graph.hpp"

namespace galley::sdk {

/// `*` matches any characters, `?` matches one. With matches = "…" in the manifest the host refuses patterns that find nothing.
class Patterns {
 public:
  Patterns() = default;
  explicit Patterns(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}

  bool empty() const { return patterns_.empty(); }
  bool match(const char* name) const {
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) { return glob_match(pattern, name); });
  }
  /// "*.bias, *.norm.weight"
  std::string text() const {
    std::string out;
    for (const std::string& pattern : patterns_) out += (out.empty() ? "" : ", ") + pattern;
    return out;
  }

 private:
  std::vector<std::string> patterns_;
};

/// What a weight's layer is called, by the weight's name: "model.layers.0.mlp.up_proj".
inline std::string module_of(const std::string& parameter) {
  const std::string end = ".weight";
  const bool ends = parameter.size() > end.size() && parameter.compare(parameter.size() - end.size(), end.size(), end) == 0;
  return ends ? parameter.substr(0, parameter.size() - end.size()) : parameter;
}
/// The same of a linear node and its weight, which may be an embedding's table as well: then the node's own name.
inline std::string module_of(const galley_node_info& node, const galley_tensor_info& weight) {
  return weight.flags & GALLEY_TENSOR_EMBEDDING ? node.name : module_of(weight.name);
}

}  // namespace galley::sdk
