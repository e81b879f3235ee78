// The plugin's kernels of a chain, on chains that are made of its ops' cases.
#pragma once

#include <string>
#include <vector>

#include "host/tools/check/tests.hpp"

namespace galley {

/// `chain`: "add>rms_norm". Each case of the first op is followed by cases of the next one that can read what it makes, in its sizes.
Status check_chain(const CheckContext& context, const std::string& chain, const std::vector<CheckDevice>& devices, TestLog& log);

}  // namespace galley
