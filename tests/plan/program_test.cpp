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

TEST(AttrList, AddsOnlyWhatIsWhole) {
  const int64_t one = 1;
  const galley_attr good = {sizeof(galley_attr), 1, "a", &one, GALLEY_ATTR_I64, 1, 0};
  const auto spoiled = [&](auto spoil) {
    galley_attr attr = good;
    attr.name = "b";
    spoil(attr);
    return attr;
  };
  const struct {
    const char* about;
    galley_attr attr;
    const char* cause;
  } cases[] = {
      {"no name", spoiled([](galley_attr& a) { a.name = nullptr; }), "attribute 2 has no name"},
      {"an empty name", spoiled([](galley_attr& a) { a.name = ""; }), "attribute 2 has no name"},
      {"no type", spoiled([](galley_attr& a) { a.type = 0; }), "attribute 'b' has the unknown type 0"},
      {"a type of the future", spoiled([](galley_attr& a) { a.type = 4; }), "attribute 'b' has the unknown type 4"},
      {"no values", spoiled([](galley_attr& a) { a.data = nullptr; }), "attribute 'b' has no values"},
      {"a name twice", spoiled([](galley_attr& a) { a.name = "a"; }), "attribute 'a' is there twice"},
      {"of the future", spoiled([](galley_attr& a) { a.revision = 2; }), "attribute 2 has revision 2; this version knows revision 1"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.about);
    AttrList list;
    const galley_attr* const attrs[] = {&good, &c.attr};
    const Status status = list.add(attrs, 2);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().cause, c.cause);
  }
  AttrList list;
  const Status no_table = list.add(nullptr, 3);
  ASSERT_FALSE(no_table.ok());
  EXPECT_EQ(no_table.error().cause, "3 attributes and no table of them");
  const galley_attr* const none[] = {nullptr};
  EXPECT_EQ(list.add(none, 1).error().cause, "attribute 1 is null");
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.add(nullptr, 0).ok());
  const galley_attr* const attrs[] = {&good};
  EXPECT_TRUE(list.add(attrs, 1).ok());
  EXPECT_EQ(list.view().size(), 1u);
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
