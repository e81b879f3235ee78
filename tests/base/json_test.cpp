#include "host/base/json.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/base/folder.hpp"

namespace galley {
namespace {

std::string error_of(std::string_view text) {
  const Result<Value> value = parse_json(text, "config.json");
  if (value.ok()) return "no error";
  EXPECT_EQ(value.error().exit, Exit::Recipe);
  return value.error().cause;
}

TEST(Json, KindsBecomeValues) {
  const Value value = *parse_json(
      R"({"a": [1, -2, 2.0, 1e3, true, null], "b": {"c": "é\u00e9\n"}, "big": 9223372036854775807, "huge": 9223372036854775808})", "x");
  const Table& table = *value.as<Table>();
  const List& list = *table.at("a").as<List>();
  ASSERT_EQ(list.size(), 6u);
  EXPECT_EQ(*list[0].as<int64_t>(), 1);
  EXPECT_EQ(*list[1].as<int64_t>(), -2);
  EXPECT_EQ(*list[2].as<double>(), 2.0);
  EXPECT_EQ(*list[3].as<double>(), 1000.0);
  EXPECT_EQ(*list[4].as<bool>(), true);
  EXPECT_TRUE(list[5].is_nil());
  EXPECT_EQ(*table.at("b").as<Table>()->at("c").as<std::string>(), "éé\n");
  EXPECT_EQ(*table.at("big").as<int64_t>(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(*table.at("huge").as<double>(), 9223372036854775808.0);
}

TEST(Json, ContainersNest) {
  const Value value = *parse_json(R"([[], {}, [[1], {"x": [2, {"y": []}]}, 3]])", "x");
  EXPECT_EQ(to_json(value), R"([[],{},[[1],{"x":[2,{"y":[]}]},3]])");
  EXPECT_EQ(*parse_json("7", "x")->as<int64_t>(), 7);
}

TEST(Json, ErrorsHaveFileLineAndColumn) {
  EXPECT_EQ(error_of("{\n  \"a\": 1,\n  \"b\" 2\n}"),
            "config.json:3:7: syntax error while parsing object separator - unexpected number literal; expected ':'");
  EXPECT_EQ(error_of("[1, 2").substr(0, 17), "config.json:1:6: ");
  EXPECT_EQ(error_of("").substr(0, 17), "config.json:1:1: ");
  EXPECT_EQ(error_of("{} x").substr(0, 17), "config.json:1:4: ");
  EXPECT_NE(error_of("[1,]").find("config.json:1:4: syntax error"), std::string::npos) << error_of("[1,]");
  EXPECT_NE(error_of("\"\xff\"").find("invalid string"), std::string::npos);
  EXPECT_NE(error_of("[1e999]").find("config.json:1:6: number overflow"), std::string::npos) << error_of("[1e999]");
  EXPECT_NE(error_of("[NaN]"), "no error");
}

TEST(Json, AKeyMayComeOnce) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"b\": {\"a\": 2},\n \"a\": 3}"), "config.json:3:2: the key \"a\" is there twice");
  EXPECT_EQ(error_of("{\"x\": {\"y\": 1, \"y\": 1}}"), "config.json:1:16: the key \"y\" is there twice");
}

TEST(Json, DepthIsLimited) {
  EXPECT_EQ(error_of(std::string(200, '[') + std::string(200, ']')), "no error");
  EXPECT_EQ(error_of(std::string(201, '[') + std::string(201, ']')), "config.json:1:201: more than 200 levels");
  EXPECT_NE(error_of(std::string(1'000'000, '[')), "no error");
}

TEST(Json, TheNumberOfValuesCanBeBounded) {
  EXPECT_TRUE(parse_json("[1, 2, {\"a\": 3}]", "x", 5).ok());
  EXPECT_EQ(parse_json("[1, 2, {\"a\": 3}]", "x", 4).error().cause, "x:1:15: more than 4 values");
  EXPECT_EQ(parse_json("[\n[],[],[]]", "x", 3).error().cause, "x:2:7: more than 3 values");
  std::string numbers = "[0";
  for (size_t i = 0; i < kMostJsonValues; ++i) numbers += ",0";
  EXPECT_FALSE(parse_json(numbers + "]", "x").ok()) << "whoever says nothing has a bound";
  EXPECT_TRUE(parse_json(numbers + "]", "x", kManyJsonValues).ok());
}

TEST(Json, WritesWhatReadsBackTheSame) {
  const std::string text = R"({"a":[1,-2,2.0,1000.0,0.1,1e-07,true,null],"b":{"c":"\"\\\u0001\té"}})";
  EXPECT_EQ(to_json(*parse_json(text, "x")), text);
  EXPECT_EQ(to_json(*parse_json(R"({"a":[1,{}],"b":[]})", "x"), 2), "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
  EXPECT_EQ(to_json(Value(std::numeric_limits<double>::infinity())), "null");
  struct Cosine final : Foreign {
    const char* type_name() const override { return "schedule"; }
    std::string written() const override { return "cosine{peak=1}"; }
  };
  EXPECT_EQ(to_json(Value(Cosine())), "\"cosine{peak=1}\"");
  EXPECT_STREQ(Value(Cosine()).type_name(), "schedule");
}

TEST(Json, ReadsFiles) {
  const Folder folder;
  EXPECT_EQ(*read_json(folder.put("a.json", "[1]"))->as<List>()->at(0).as<int64_t>(), 1);
  const Result<Value> missing = read_json(folder / "b.json");
  EXPECT_EQ(missing.error().exit, Exit::Failed);
  EXPECT_EQ(read_json(folder.put("c.json", "[1")).error().cause.substr(0, (folder / "c.json").string().size() + 5),
            (folder / "c.json").string() + ":1:3:");
}

}  // namespace
}  // namespace galley
