// arg() and --set: types, what is missing, what nobody asked for.
#include "host/recipe/scan.hpp"
#include "tests/recipe/helper.hpp"

namespace galley {
namespace {

using Sets = std::map<std::string, std::string>;

std::string cause(const std::string& text, const Sets& sets, std::string* hint = nullptr) {
  return RecipeFolder().cause(text, {{.sets = sets}}, hint);
}

TEST(Arguments, TakeTheTypeOfTheirDefault) {
  const std::string text = "local s, i, n, b, t = arg('s'), arg('i', 4), arg('n', 0.5), arg('b', false), arg('t', 'x')\n" +
                           uses("use 'x' { s = s, i = i, n = n, b = b, t = t }");
  const RecipeFolder folder;
  const Table given =
      folder.recipe(text, {{.sets = {{"s", "5"}, {"i", "-7"}, {"n", "1e-3"}, {"b", "true"}, {"t", "a=b"}}}}).uses.at(0).options;
  EXPECT_EQ(*given.at("s").as<std::string>(), "5");
  EXPECT_EQ(*given.at("i").as<int64_t>(), -7);
  EXPECT_EQ(*given.at("n").as<double>(), 1e-3);
  EXPECT_EQ(*given.at("b").as<bool>(), true);
  EXPECT_EQ(*given.at("t").as<std::string>(), "a=b");
  const Table by_default = folder.recipe(text, {{.sets = {{"s", ""}}}}).uses.at(0).options;
  EXPECT_EQ(*by_default.at("s").as<std::string>(), "");
  EXPECT_EQ(*by_default.at("i").as<int64_t>(), 4);
  EXPECT_EQ(*by_default.at("n").as<double>(), 0.5);
  EXPECT_EQ(*by_default.at("b").as<bool>(), false);
  EXPECT_EQ(*by_default.at("t").as<std::string>(), "x");
  // An integer is a number too.
  EXPECT_EQ(*folder.recipe(text, {{.sets = {{"s", ""}, {"n", "3"}}}}).uses.at(0).options.at("n").as<double>(), 3.0);
  // As Python writes it, and a whole number with an exponent.
  const Table written = folder.recipe(text, {{.sets = {{"s", ""}, {"b", "True"}, {"i", "1e3"}}}}).uses.at(0).options;
  EXPECT_EQ(*written.at("b").as<bool>(), true);
  EXPECT_EQ(*written.at("i").as<int64_t>(), 1000);
}

TEST(Arguments, OfTheWrongType) {
  std::string hint;
  EXPECT_EQ(cause("\narg('batch', 4)", {{"batch", "four"}}, &hint), "r.lua:2: argument 'batch' must be an integer, got \"four\"");
  EXPECT_EQ(hint, "its default is 4, which decides the type");
  EXPECT_EQ(cause("arg('batch', 4)", {{"batch", "4.5"}}, &hint), "r.lua:1: argument 'batch' must be an integer, got \"4.5\"");
  EXPECT_EQ(hint, "its default is 4, which decides the type; for fractions, the recipe has to give a default such as 4.0");
  EXPECT_EQ(cause("arg('batch', 4)", {{"batch", ""}}), "r.lua:1: argument 'batch' must be an integer, got \"\"");
  EXPECT_EQ(cause("arg('batch', 4)", {{"batch", "4 "}}), "r.lua:1: argument 'batch' must be an integer, got \"4 \"");
  EXPECT_EQ(cause("arg('lr', 1e-3)", {{"lr", "1e-3x"}}), "r.lua:1: argument 'lr' must be a number, got \"1e-3x\"");
  EXPECT_EQ(cause("arg('lr', 1e-3)", {{"lr", "nan"}}), "r.lua:1: argument 'lr' must be a number, got \"nan\"");
  EXPECT_EQ(cause("arg('lr', 1e-3)", {{"lr", "inf"}}), "r.lua:1: argument 'lr' must be a number, got \"inf\"");
  EXPECT_EQ(cause("arg('b', true)", {{"b", "yes"}}), "r.lua:1: argument 'b' must be true or false, got \"yes\"");
  EXPECT_EQ(cause("arg('t', {})", {}), "r.lua:1: the default of argument 't' is a list");
  EXPECT_EQ(cause("arg()", {}), "r.lua:1: arg takes the name of an argument, and perhaps a default");
  EXPECT_EQ(cause("arg(5)", {}), "r.lua:1: arg takes the name of an argument, and perhaps a default");
  EXPECT_EQ(cause("arg('a b')", {}), "r.lua:1: arg takes the name of an argument, and perhaps a default");
  EXPECT_EQ(cause("arg('a', 1, 2)", {}), "r.lua:1: arg takes a name and a default, got more");
}

TEST(Arguments, Missing) {
  const std::string text =
      "local lr = arg('lr', 1e-3)\nreturn recipe {\n model = model { path = arg('model') },\n data = data.text { files = { arg('text') } "
      "},\n"
      " steps = arg('steps'), batch = arg('batch', 4) }";
  std::string hint;
  EXPECT_EQ(cause(text, {}, &hint), "r.lua:3: arguments 'model', 'text' and 'steps' are not given");
  EXPECT_EQ(
      hint,
      "the arguments of this recipe: lr = 0.001, model (needed), text (needed), steps (needed), batch = 4; set with --set name=value");
  EXPECT_EQ(cause(text, {{"model", "x"}, {"text", "y"}}), "r.lua:5: argument 'steps' is not given");
  EXPECT_EQ(cause(text, {{"model", "x"}, {"text", "y"}, {"steps", "5"}}),
            "r.lua:5: 'steps' of the recipe must be a whole number in [1, 10000000], not '5'");
}

TEST(Arguments, MissingOnesWinOverWhatTheyCause) {
  std::string hint;
  const std::string text = "local n = arg('n') * 2\nlocal m = arg('m', 5)\nreturn recipe { steps = arg 'last' }";
  EXPECT_EQ(cause(text, {}, &hint), "r.lua:1: argument 'n' is not given");
  EXPECT_EQ(hint, "the arguments of this recipe: n (needed), m, last; set with --set name=value");
}

TEST(Arguments, Unknown) {
  std::string hint;
  EXPECT_EQ(cause(with("steps = arg('steps', 5),"), {{"step", "3"}}, &hint), "r.lua: there is no argument 'step'; did you mean 'steps'?");
  EXPECT_EQ(hint, "the arguments of this recipe: steps = 5; set with --set name=value");
  EXPECT_EQ(cause(with("steps = 5,"), {{"zzz", "3"}}, &hint), "r.lua: there is no argument 'zzz'");
  EXPECT_EQ(hint, "this recipe has no arguments");
  EXPECT_EQ(cause("return recipe { model = model { path = arg('model') } }", {{"modle", "x"}}),
            "r.lua: there is no argument 'modle'; did you mean 'model'?");
  // One that a condition passes over is an argument all the same.
  EXPECT_EQ(cause("if arg('more', false) then arg('n', 1) end\n" + with("steps = 5,"), {{"n", "3"}}), "");
}

TEST(SourceMap, FindsEntries) {
  const std::string text = R"(-- recipe { steps = 1 }
local s = [[ recipe { steps = 2 } ]] .. "recipe { steps = 3 }"
return recipe {
  model = model { steps = 4,
    path = "}" }, --[==[ length = 5,
  ]==] length = 6,
  f = function() local seed = { 7 } return { seed = seed } end,
  use "a" { x = 1,
    y = 2 }, use "b" { z =
      3 }, batch == 8,
  seed = 9; ["head"] = 10,
}
)";
  const SourceMap map(text);
  const auto recipe = map.entries(3, "recipe");
  EXPECT_EQ(recipe, (std::map<std::string, int>{{"model", 4}, {"length", 6}, {"f", 7}, {"seed", 11}}));
  EXPECT_EQ(map.entries(4, "model"), (std::map<std::string, int>{{"steps", 4}, {"path", 5}}));
  EXPECT_EQ(map.entries(8, "use"), (std::map<std::string, int>{{"x", 8}, {"y", 9}}));
  EXPECT_EQ(map.entries(9, "use"), (std::map<std::string, int>{{"z", 9}}));
  EXPECT_TRUE(map.entries(1, "recipe").empty());
  EXPECT_TRUE(map.entries(99, "recipe").empty());
  EXPECT_TRUE(SourceMap("").entries(1, "x").empty());
  EXPECT_TRUE(SourceMap("recipe {").entries(1, "recipe").empty());
  EXPECT_TRUE(SourceMap("recipe ( \"x").entries(1, "recipe").empty());
}

TEST(SourceMap, FindsNames) {
  const std::string text = "arg('a') arg 'b' arg(\"c\", 1) arg(x) -- arg('no')\n arg('a') arg [[d]] arg";
  EXPECT_EQ(SourceMap(text).names_asked("arg"), (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_TRUE(SourceMap("arg(").names_asked("arg").empty());
}

}  // namespace
}  // namespace galley
