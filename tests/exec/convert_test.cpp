#include "host/exec/convert.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace galley {
namespace {

template <class To, class From>
To one(uint32_t to_dtype, From value, uint32_t from_dtype) {
  To out;
  convert(&out, to_dtype, &value, from_dtype, 1);
  return out;
}

double wide(uint16_t bits, uint32_t dtype) { return one<double>(GALLEY_F64, bits, dtype); }

TEST(Convert, EveryHalfSurvivesF32AndBack) {
  for (const uint32_t dtype : {GALLEY_F16, GALLEY_BF16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const auto number = one<float>(GALLEY_F32, half, dtype);
      const auto back = one<uint16_t>(dtype, number, GALLEY_F32);
      if (std::isnan(number)) EXPECT_TRUE(std::isnan(wide(back, dtype))) << bits;
      else ASSERT_EQ(back, half) << dtype_name(dtype);
    }
  }
}

// Against the definition: the nearest of the two neighbours, the even one when both are as near.
TEST(Convert, RoundsToNearestEven) {
  for (const uint32_t dtype : {GALLEY_F16, GALLEY_BF16}) {
    const uint32_t infinity = dtype == GALLEY_F16 ? 0x7c00 : 0x7f80;
    for (uint32_t bits = 0; bits + 1 < infinity; bits += 7) {
      const double low = wide(static_cast<uint16_t>(bits), dtype), high = wide(static_cast<uint16_t>(bits + 1), dtype);
      const double middle = (low + high) / 2;
      EXPECT_EQ(one<uint16_t>(dtype, middle, GALLEY_F64), bits % 2 ? bits + 1 : bits);
      EXPECT_EQ(one<uint16_t>(dtype, std::nextafter(middle, 1e300), GALLEY_F64), bits + 1);
      EXPECT_EQ(one<uint16_t>(dtype, std::nextafter(middle, -1e300), GALLEY_F64), bits);
      EXPECT_EQ(one<uint16_t>(dtype, static_cast<float>(middle), GALLEY_F32), bits % 2 ? bits + 1 : bits);
      EXPECT_EQ(one<uint16_t>(dtype, -std::nextafter(middle, 1e300), GALLEY_F64), (bits + 1) | 0x8000u);
    }
  }
  EXPECT_EQ(one<uint16_t>(GALLEY_F16, 65519.0f, GALLEY_F32), 0x7bff);
  EXPECT_EQ(one<uint16_t>(GALLEY_F16, 65520.0f, GALLEY_F32), 0x7c00);
  EXPECT_EQ(one<float>(GALLEY_F32, 0.1, GALLEY_F64), 0.1f);
}

TEST(Convert, FindsTheFirstThatIsNotFinite) {
  std::vector<float> numbers(5000, 1);
  EXPECT_EQ(first_not_finite(numbers.data(), GALLEY_F32, 5000), -1);
  numbers[4321] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_not_finite(numbers.data(), GALLEY_F32, 5000), 4321);
  numbers[17] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_not_finite(numbers.data(), GALLEY_F32, 5000), 17);
  const std::vector<uint16_t> halves = {0x7bff, 0x7f7f, 0x7c00};
  EXPECT_EQ(first_not_finite(halves.data(), GALLEY_F16, 3), 1);
  EXPECT_EQ(first_not_finite(halves.data(), GALLEY_BF16, 3), -1);
  EXPECT_EQ(first_not_finite(numbers.data(), GALLEY_I32, 5000), -1);
}

TEST(Convert, SaysWhatItCannotDo) {
  EXPECT_TRUE(convertible(GALLEY_F64, GALLEY_BF16));
  EXPECT_TRUE(convertible(GALLEY_U8, GALLEY_U8));
  EXPECT_FALSE(convertible(GALLEY_I32, GALLEY_F32));
  EXPECT_FALSE(safetensors_dtype(GALLEY_U16));
  EXPECT_EQ(dtype_of(*safetensors_dtype(GALLEY_BF16)), GALLEY_BF16);
}

}  // namespace
}  // namespace galley
