#include "host/data/window.hpp"

#include <gtest/gtest.h>

#include "tests/data/support.hpp"

namespace galley {
namespace {

TEST(BatchLayout, TensorsAreAlignedAndApart) {
  const BatchLayout layout{3, 5};
  EXPECT_EQ(layout.tensor_bytes(), 60u);
  EXPECT_EQ(layout.offset(Fill::Tokens), 0u);
  EXPECT_EQ(layout.offset(Fill::FirstKey), 192u);
  EXPECT_EQ(layout.bytes(), 256u);
  EXPECT_EQ(window_bytes(layout, 7), 7 * 256u);
  EXPECT_EQ((BatchLayout{16, 1}.bytes()), 4 * 64u);
}

TEST(WindowBuffer, RowsTileTheMemory) {
  OwnedWindow window({2, 3}, 2);
  window.buffer.micro_batches = 2;
  ASSERT_EQ(window.buffer.rows(), 4);
  for (int64_t r = 0; r < 4; ++r) {
    window.buffer.row(r).pad(0, 3);
    window.buffer.row(r).next()[1] = static_cast<int32_t>(r);
  }
  EXPECT_EQ(window.buffer.count_valid(), 4);
  const std::span<const int32_t> labels = window.buffer.tensor(1, Fill::NextTokens);
  EXPECT_EQ(std::vector<int32_t>(labels.begin(), labels.end()), (std::vector<int32_t>{-100, 2, -100, -100, 3, -100}));
  EXPECT_EQ(copy_row(window.buffer, 3).first_key, (std::vector<int32_t>{0, 1, 2}));
}

}  // namespace
}  // namespace galley
