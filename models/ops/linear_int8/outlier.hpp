// What linear_int8 takes for an outlier, on every device.
#pragma once

#include "galley/cpp/int8_rows.hpp"

namespace galley::linear_int8 {

/// Of a magnitude in F16, as bits. NaN is none: the scale of its row tells of it.
GALLEY_ANYWHERE bool is_outlier(uint32_t magnitude, float threshold) {
  return threshold > 0 && sdk::int8_rows::magnitude(magnitude) >= threshold;
}

}  // namespace galley::linear_int8
