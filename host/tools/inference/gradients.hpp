// Computes a window of the training data without training on it, for `galley gradients` and for `galley certify`.
#pragma once

#include <cstdint>

#include "host/base/new_file.hpp"
#include "host/session/session.hpp"

namespace galley {

/// Returns the mean loss over the first window of the training data, as evaluation computes it: without dropout. The study must be for
/// Purpose::Evaluate, and nothing else have run before.
Result<double> first_loss(Session& session);

/// Runs forward and backward of a window (from 0) without an update, and writes its mean loss, grad.* and, if the study keeps them, the
/// logits as a safetensors file. The study must be for Purpose::Gradients.
Status write_gradients(Session& session, NewFile& file, int64_t window = 0);

}  // namespace galley
