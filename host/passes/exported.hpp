// Reads the name under which a strategy saves a tensor beside the parameters (the verb export_tensor).
#pragma once

#include <algorithm>
#include <string>

#include "host/graph/draft.hpp"

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
  bool is_written(const Draft& draft) const {
    if (of_format()) return draft.exports.model != GALLEY_EXPORT_OWN;
    return std::ranges::any_of(draft.exports.saved(draft.graph),
                               [&](galley_tensor t) { return draft.graph.tensor(t).saved.path() == file; });
  }
  std::string file, entry;
};

}  // namespace galley
