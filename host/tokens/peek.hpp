// Looks into files of documents before they are prepared: whether they have the form that the recipe says, and which labels are in them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/tokens/document_encoder.hpp"
#include "host/tokens/documents.hpp"

namespace galley {

/// Whether the first document of the first file can be read; with skip_bad only whether the file can. So that a plan is made for data of the
/// right form.
Status check_first_line(const DataSpec& spec, const Documents& documents, const DocumentEncoder& encoder, bool skip_bad);

/// The labels in the field `label` of all lines.
struct LabelsFound {
  std::vector<std::string> names;  ///< those that are texts and no numbers, in order
  int64_t largest = -1;            ///< of those that are whole numbers
};
/// Of data.jsonl, and parts of a mix that are. Lines that are none are left to whoever prepares them. Read once a process as long as the
/// files stay the same. [main-thread]
Result<LabelsFound> labels_in(const DataSpec& spec);

}  // namespace galley
