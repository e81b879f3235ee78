// Converts numbers from one dtype to another, for weights, states and exports.
#pragma once

#include <cstdint>
#include <string>

#include "host/plan/dtype.hpp"

namespace galley {

/// Converts `count` numbers to a dtype that they are convertible to, and rounds each once, to nearest, ties to even. The ranges must not
/// overlap; neither has to be aligned. [thread-safe]
void convert(void* to, uint32_t to_dtype, const void* from, uint32_t from_dtype, int64_t count);

/// Returns the index of the first NaN or infinity among `count` numbers; −1 if there is none, or the dtype has none. [thread-safe]
int64_t first_not_finite(const void* data, uint32_t dtype, int64_t count);

/// Returns the text of a number of any size, for messages: "100000", "1e+300".
std::string short_number(double value);

}  // namespace galley
