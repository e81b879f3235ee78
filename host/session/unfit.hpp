// Makes the error for a plan that does not fit.
#pragma once

#include <string>

#include "host/session/study.hpp"

namespace galley {

/// Returns "the plan needs 3.00 GiB, --memory has 2.00 GiB", in bytes if the two look equal. The hint says what helps, by the owner of most
/// bytes at the peak. `of` is " of 'device'"; `whose` names what has `limit` bytes.
Error does_not_fit(const Study& s, const ClassPlan& plan, int64_t needed, const std::string& of, const std::string& whose, int64_t limit);

}  // namespace galley
