// `galley data`: what the model will see.
#pragma once

#include "host/session/study.hpp"

namespace galley {

/// Prepares the study's data and shows on stdout what was found, how it is packed, and the first `rows` rows of the first window as text,
/// the tokens that count in the loss in colour on a terminal, else between ‹ and ›. As JSON: one line of facts, then one for each row, its
/// tensors as the model gets them (window.hpp). No device is opened.
enum class DataForm : uint8_t { Text, Json };
Status show_data(const Study& study, int64_t rows, DataForm form);

}  // namespace galley
