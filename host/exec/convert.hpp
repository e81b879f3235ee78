// Numbers from one dtype to another.
#pragma once

#include <cstdint>
#include <string>

#include "host/plan/dtype.hpp"

namespace galley {

/// `count` numbers from one dtype to another that it is convertible to, each rounded once, to nearest, ties to even. The ranges do not
/// overlap; neither has to be aligned. [thread-safe]
void convert(void* to, uint32_t to_dtype, const void* from, uint32_t from_dtype, int64_t count);

/// Index of the first NaN or infinity among `count` numbers, −1 when there is none or the dtype has none. [thread-safe]
int64_t first_not_finite(const void* data, uint32_t dtype, int64_t count);

/// "100000", "1e+300": a number of any size in a message.
std::string short_number(double value);

}  // namespace galley
