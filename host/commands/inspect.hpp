// The command `galley data`, which shows what the model will see.
#pragma once

#include "host/session/study.hpp"
#include "host/tokens/rows.hpp"

namespace galley {

enum class DataForm : uint8_t { Text, Json };

/// Prepares the study's data and prints what was found, how it is packed, and the first `rows` rows of the first window, or of the
/// validation data, as text. Tokens that count in the loss are shown in colour on a terminal, and between ‹ and › elsewhere. As JSON: one
/// line of facts, then one line for each row, with its tensors as the model gets them (window.hpp). Opens no device. `warn` is told what
/// people should change.
Status show_data(Study& study, int64_t rows, DataForm form, Split split, const std::function<void(const std::string&)>& warn);

}  // namespace galley
