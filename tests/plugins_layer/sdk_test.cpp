// What the C++ side of the SDK finds in a plugin before the host sees it: methods that would never be called, and more components than a
// format may have.
#include <gtest/gtest.h>

#include "galley/cpp/strategy.hpp"

namespace galley::sdk {
namespace {

using detail::Misfits;

struct Right {
  explicit Right(const Options&) {}
  void model(ModelGraph&) const {}
  void load(LoadGraph&) const {}
  void claim(const GraphReader&, const Claims&) const {}
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;
  void build(UpdateGraph&, Trained) const {}
  void decide(const galley_saved_set&, uint32_t*) const {}
  int64_t budget() const { return 0; }
};
struct Empty final {};
struct Wrong {
  void model(Graph&, uint32_t) const {}
  void load(ModelGraph&) const {}
  void claim(Graph&, const Claims&) const {}
  void build(UpdateGraph&, Trained) {}  // not const
  void decide(const galley_saved_set*, uint32_t*) const {}
  uint64_t budget() const { return 0; }
};

TEST(SdkStrategy, MethodsThatNobodyWouldCallDoNotCompile) {
  EXPECT_TRUE(Misfits<Wrong>::model && Misfits<Wrong>::load && Misfits<Wrong>::claim && Misfits<Wrong>::build && Misfits<Wrong>::decide &&
              Misfits<Wrong>::budget);
  EXPECT_FALSE(Misfits<Right>::model || Misfits<Right>::load || Misfits<Right>::claim || Misfits<Right>::build || Misfits<Right>::decide ||
               Misfits<Right>::budget);
  EXPECT_FALSE(Misfits<Empty>::model || Misfits<Empty>::load || Misfits<Empty>::claim || Misfits<Empty>::build || Misfits<Empty>::decide ||
               Misfits<Empty>::budget);
  EXPECT_NE(detail::StrategyOf<Right>::get(nullptr, GALLEY_CLAIM), nullptr);
}

/// As many as the first extent says.
void many(const std::vector<int64_t>& shape, const FormatOptions&, Components& out) {
  for (int64_t k = 0; k < shape[0]; ++k) out.add(".c", GALLEY_F32, std::vector<int64_t>(shape.size(), 1), 0);
}

TEST(SdkComponents, NoMoreThanThereIsRoomFor) {
  const galley_format table = format<many>("many", "pack", "unpack");
  galley_component parts[GALLEY_MAX_COMPONENTS];
  galley_component* pointers[GALLEY_MAX_COMPONENTS];
  for (size_t k = 0; k < GALLEY_MAX_COMPONENTS; ++k) {
    parts[k] = fresh<galley_component>();
    pointers[k] = &parts[k];
  }
  const auto made = [&](const std::vector<int64_t>& shape, galley_error& error) {
    uint32_t n = 0;
    error = GALLEY_ERROR_INIT;
    const galley_status status =
        table.components(table.self, shape.data(), static_cast<uint32_t>(shape.size()), nullptr, 0, pointers, &n, &error);
    return status == GALLEY_OK ? static_cast<int64_t>(n) : -1;
  };
  galley_error error;
  EXPECT_EQ(made({8}, error), 8);
  EXPECT_EQ(made({9}, error), -1);
  EXPECT_STREQ(error.text, "component '.c' is one more than the 8 that a format may have");
  EXPECT_EQ(made({1, 1, 1, 1, 1, 1, 1, 1, 1}, error), -1);
  EXPECT_STREQ(error.text, "component '.c' has rank 9");
}

}  // namespace
}  // namespace galley::sdk
