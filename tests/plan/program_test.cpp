#include "host/plan/program.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

namespace galley {
namespace {

TEST(Program, Elements) {
  EXPECT_EQ(elements({}), 1);
  EXPECT_EQ(elements({2, 3, 4}), 24);
  EXPECT_EQ(elements({2, 0}), 0);
}

TEST(AttrList, HoldsValues) {
  AttrList list;
  EXPECT_TRUE(list.empty());
  list.set("count", int64_t{3});
  list.set("eps", 1e-5);
  list.set("mode", std::string("causal"));
  const int64_t axes[] = {2, 0, 1};
  list.set(galley_attr{sizeof(galley_attr), 1, "axes", axes, GALLEY_ATTR_I64, 3, 0});
  const double betas[] = {0.9, 0.95};
  list.set(galley_attr{sizeof(galley_attr), 1, "betas", betas, GALLEY_ATTR_F64, 2, 0});
  list.set(galley_attr{sizeof(galley_attr), 1, "name", "longer", GALLEY_ATTR_STRING, 4, 0});

  const auto attrs = list.view();
  ASSERT_EQ(attrs.size(), 6u);
  EXPECT_STREQ(attrs[0]->name, "count");
  EXPECT_EQ(*static_cast<const int64_t*>(list.find("count")->data), 3);
  EXPECT_EQ(*static_cast<const double*>(list.find("eps")->data), 1e-5);
  EXPECT_EQ(list.find("mode")->count, 6u);
  EXPECT_EQ(std::string_view(static_cast<const char*>(list.find("mode")->data)), "causal");
  EXPECT_EQ(list.find("axes")->count, 3u);
  EXPECT_NE(list.find("axes")->data, axes) << "copied";
  EXPECT_EQ(static_cast<const int64_t*>(list.find("axes")->data)[1], 0);
  EXPECT_EQ(static_cast<const double*>(list.find("betas")->data)[1], 0.95);
  EXPECT_EQ(std::string_view(static_cast<const char*>(list.find("name")->data)), "long");
  EXPECT_EQ(list.find("absent"), nullptr);
}

TEST(AttrList, CopiesShareValuesAndChangeAlone) {
  AttrList first;
  first.set("a", int64_t{1});
  first.set("b", int64_t{2});
  AttrList second = first;
  EXPECT_EQ(first.find("a"), second.find("a"));
  second.set("a", 0.5);
  EXPECT_EQ(first.find("a")->type, GALLEY_ATTR_I64);
  EXPECT_EQ(second.find("a")->type, GALLEY_ATTR_F64);
  EXPECT_STREQ(second.view()[0]->name, "a") << "stays in its place";
  EXPECT_EQ(second.view().size(), 2u);
}

TEST(Operand, Bytes) {
  Operand operand;
  EXPECT_FALSE(operand.present());
  operand.tensor = 3;
  operand.shape = {4, 5};
  operand.dtype = GALLEY_BF16;
  EXPECT_TRUE(operand.present());
  EXPECT_EQ(operand.bytes(), 40);
}

}  // namespace
}  // namespace galley
