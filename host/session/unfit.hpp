// What is said of a plan that does not fit.
#pragma once

#include <string>

#include "host/session/study.hpp"

namespace galley {

/// "the plan needs 3.00 GiB, --memory has 2.00 GiB", in bytes where the two look equal; the hint says what helps, by what holds the most at
/// the peak. `of`: " of 'device'". `whose`: what has `limit` bytes.
Error does_not_fit(const Study& s, const ClassPlan& plan, int64_t needed, const std::string& of, const std::string& whose, int64_t limit);

}  // namespace galley
