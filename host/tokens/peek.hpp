// Reads a little of files of documents before they are prepared: checks that they have the form that the recipe says, and finds labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/tokens/document_encoder.hpp"
#include "host/tokens/documents.hpp"

namespace galley {

/// Checks that the first document of the first file can be read, with skip_bad only that the file can: a plan is made for data of the right
/// form.
Status check_first_line(const DataSpec& spec, const Documents& documents, const DocumentEncoder& encoder, bool skip_bad);

/// The labels in the field `label` of all lines of the data.
struct LabelsFound {
  std::vector<std::string> names;  ///< labels that are texts and no numbers, in order
  int64_t largest = -1;            ///< the largest label that is a whole number
};
/// Finds the labels of data.jsonl, and of such parts of a mix. Leaves bad lines to whoever prepares them. Reads files once in a process, as
/// long as they stay the same. [main-thread]
Result<LabelsFound> labels_in(const DataSpec& spec);

}  // namespace galley
