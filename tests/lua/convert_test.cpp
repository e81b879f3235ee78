// Between Lua's values and plain data.
#include "host/lua/convert.hpp"

#include "tests/lua/helper.hpp"

namespace galley {
namespace {

struct Converted {
  Value value;
};

Status convert(Sandbox& box, const std::string& text, Converted* out) {
  TRY_STATUS(box.run_text("given = " + text, "t.lua"));
  return box.protect(
      [](lua_State* L) {
        lua_getglobal(L, "given");
        static_cast<Converted*>(lua_touserdata(L, 1))->value = Converter(L).read(-1, "given");
        return 0;
      },
      out);
}

std::string conversion_error(const std::string& text) {
  Converted out;
  const auto box = sandbox({.seconds = 60});  // sanitizers are slow
  const Status status = convert(*box, text, &out);
  return status.ok() ? "no error" : status.error().cause;
}

TEST(Convert, ThereAndBack) {
  const auto box = sandbox();
  Converted out;
  ASSERT_TRUE(convert(*box, "{ a = 1, b = 2.5, c = 'x', d = true, e = { 1, 2, { f = {} } }, g = { h = -3 }, i = 1e3 }", &out).ok());
  const Table& table = *out.value.as<Table>();
  EXPECT_EQ(*table.at("a").as<int64_t>(), 1);
  EXPECT_EQ(*table.at("b").as<double>(), 2.5);
  EXPECT_EQ(*table.at("c").as<std::string>(), "x");
  EXPECT_EQ(*table.at("d").as<bool>(), true);
  EXPECT_EQ(table.at("e").as<List>()->size(), 3u);
  EXPECT_EQ(*table.at("g").as<Table>()->at("h").as<int64_t>(), -3);
  EXPECT_EQ(*table.at("i").as<double>(), 1000.0);

  ASSERT_TRUE(box->protect(
                     [](lua_State* L) {
                       push_value(L, static_cast<Converted*>(lua_touserdata(L, 1))->value);
                       lua_setglobal(L, "back");
                       return 0;
                     },
                     &out)
                  .ok());
  EXPECT_EQ(
      run(*box, "return back.a .. back.b .. back.c .. tostring(back.d) .. #back.e .. type(back.e[3].f) .. back.g.h .. math.type(back.i)"),
      "12.5xtrue3table-3float");
}

TEST(Convert, Refuses) {
  EXPECT_EQ(conversion_error("{ 1, x = 2 }"), "'given' mixes a list with named entries such as 'x'");
  EXPECT_EQ(conversion_error("{ a = { 1, nil, 3 } }"), "'given.a' is a list with a hole: it has an element 3 and no element 2");
  EXPECT_EQ(conversion_error("{ [0] = 1 }"), "'given' is a list with a hole: it has an element 0 and no element 1");
  EXPECT_EQ(conversion_error("{ [1.5] = 1 }"), "'given' has a number as a key");
  EXPECT_EQ(conversion_error("{ [true] = 1 }"), "'given' has a boolean as a key");
  EXPECT_EQ(conversion_error("{ { 0 / 0 } }"), "'given[1][1]' is not a finite number");
  EXPECT_EQ(conversion_error("{ x = math.huge }"), "'given.x' is not a finite number");
  EXPECT_EQ(conversion_error("{ x = function() end }"), "'given.x' is a function and no plain data");
  EXPECT_NE(conversion_error("{} given.x = given").find("has more than 32 levels, or contains itself"), std::string::npos);
  EXPECT_EQ(conversion_error("{} for i = 1, 30 do given = { given, given } end"), "too many values for a description");
  EXPECT_EQ(conversion_error("{} local s = ('x'):rep(1e5) for i = 1, 100 do given[i] = s end"), "too much text for a description");
}

}  // namespace
}  // namespace galley
