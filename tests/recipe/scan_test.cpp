// Calls in a text of Lua, found without running it.
#include "host/recipe/scan.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace galley {
namespace {

std::vector<std::string> items(const SourceMap::Call& call) { return {call.items.begin(), call.items.end()}; }

TEST(Scan, CallsWithTheirItems) {
  const std::string text =
      "-- one_of { in a comment }\n"
      "local s = 'one_of { in a string }' .. [[one_of { in a long one }]]\n"
      "return recipe {\n"
      "  batch = one_of { 1, 2, 4 },\n"
      "  one_of {\n"
      "    use \"lora\" { rank = 4, targets = { \"a\", \"b, }\" } }, -- , }\n"
      "    f(1, 2) ; -- of this\n"
      "    -- and of that\n"
      "    'text', -- the last one\n"
      "  },\n"
      "}\n";
  const SourceMap map(text);
  const std::vector<SourceMap::Call> calls = map.calls("one_of");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].line, 4);
  EXPECT_EQ(calls[0].name, "batch");
  EXPECT_EQ(calls[0].text, "one_of { 1, 2, 4 }");
  EXPECT_EQ(items(calls[0]), (std::vector<std::string>{"1", "2", "4"}));
  EXPECT_EQ(calls[1].line, 5);
  EXPECT_EQ(calls[1].name, "");
  ASSERT_EQ(calls[1].items.size(), 3u);
  EXPECT_EQ(calls[1].items[0], "use \"lora\" { rank = 4, targets = { \"a\", \"b, }\" } }");
  EXPECT_EQ(calls[1].items[1], "f(1, 2)");
  EXPECT_EQ(calls[1].items[2], "'text'");
}

TEST(Scan, CallsWithoutAnEndOrWithoutBraces) {
  for (const char* text : {"one_of", "one_of(1)", "one_of { 1, 2", "one_of { { }", "one_of_more { 1 }", "", "{"})
    EXPECT_TRUE(SourceMap(text).calls("one_of").empty()) << text;
  const SourceMap empty("x = one_of {}");
  ASSERT_EQ(empty.calls("one_of").size(), 1u);
  EXPECT_TRUE(empty.calls("one_of")[0].items.empty());
}

TEST(Scan, CallsWithinCalls) {
  const std::string text = "one_of { a, one_of { b, c } }";
  const SourceMap map(text);
  const auto calls = map.calls("one_of");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(items(calls[0]), (std::vector<std::string>{"a", "one_of { b, c }"}));
  EXPECT_EQ(items(calls[1]), (std::vector<std::string>{"b", "c"}));
}

}  // namespace
}  // namespace galley
