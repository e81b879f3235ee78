// The control of a comparison and of a certificate: the same recipe with other rounding errors. What it differs by is what rounding alone
// makes.
#pragma once

#include <string>

#include "host/base/result.hpp"
#include "host/session/study.hpp"

namespace galley {

/// Returns the strategy that makes a recipe its control: that whose manifest says `control = true`. It came with the program, so that no
/// plugin says itself how exact it has to be.
Result<std::string> control_strategy(const Study& study);

}  // namespace galley
