// Reads the name under which a strategy saves a tensor beside the parameters (the verb export_tensor).
#pragma once

#include <algorithm>
#include <string>

#include "host/graph/graph.hpp"

namespace galley {

/// "FILE:NAME" saves into a file with parameters, in the dtype of that file's numbers. "NAME" saves into the model's file, in the tensor's
/// own dtype, as a format needs it; a merged model, which is in no format, lacks it.
struct ExportedPlace {
  explicit ExportedPlace(const std::string& name) : entry(name) {
    const size_t colon = name.find(".safetensors:");
    if (colon == std::string::npos) return;
    const size_t end = name.find(':', colon);
    file = name.substr(0, end);
    entry = name.substr(end + 1);
  }
  bool of_format() const { return file.empty(); }
  bool is_written(const Graph& graph) const {
    if (of_format()) return graph.exports.model != GALLEY_EXPORT_OWN;
    const std::vector<galley_tensor> saved = graph.saved();
    return std::any_of(saved.begin(), saved.end(), [&](galley_tensor t) { return graph.file_of(t) == file; });
  }
  std::string file, entry;
};

}  // namespace galley
