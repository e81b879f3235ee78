// `galley data`: what the model will see.
#pragma once

#include "host/commands/study.hpp"

namespace galley {

/// Prepares the study's data and shows on stdout what was found, how it is packed, and the first `rows` rows of the first window as text, the
/// tokens that count in the loss in colour on a terminal, else between ‹ and ›. No device is opened.
Status show_data(const Study& study, int64_t rows);

}  // namespace galley
