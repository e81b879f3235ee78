// Options against a manifest: every type, every refusal with the recipe's line, and what a plugin reads in the end.
#include "host/plugins/options.hpp"

#include <gtest/gtest.h>

#include <filesystem>

namespace galley {
namespace {

const Manifest& manifest() {
  static const Manifest m = [] {
    const auto read = parse_manifest(R"toml(
id = "lora"
version = "1"
abi = "0.4"
[[strategy]]
name = "lora"
summary = "adapts"
exactness = "bits"
option = [
  { name = "rank", type = "integer", range = "[1, 512]", required = true, aliases = ["r"], description = "Rows of A." },
  { name = "lr", type = "number", range = "(0, 1]", default = 1e-3, schedule = true, description = "Rate." },
  { name = "warm", type = "integer", schedule = true, description = "Steps." },
  { name = "alpha", type = "number", description = "Scale." },
  { name = "merge", type = "boolean", default = false, description = "Add." },
  { name = "note", type = "string", description = "Text." },
  { name = "targets", type = "strings", default = ["all-linear"], description = "Layers." },
  { name = "betas", type = "numbers", length = 2, range = "[0, 1)", default = [0.9, 0.95], description = "Means." },
  { name = "path", type = "path", description = "Folder." },
  { name = "budget", type = "bytes", description = "Memory." },
  { name = "mode", type = "choice", choices = ["a", "b"], default = "a", description = "Way." },
]
[[strategy]]
name = "bare"
summary = "nothing"
exactness = "bits"
)toml",
                                     "plugin.toml");
    EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().cause);
    return *read;
  }();
  return m;
}

Result<std::unique_ptr<const Options>> make(Table options, const char* name = "lora") {
  Use use{name, std::move(options), {"recipe.lua", 14}, {{"mode", 15}}};
  return Options::create(*manifest().strategy(name), use);
}

std::string cause(Table options) {
  options.try_emplace("rank", Value(int64_t{4}));
  const auto made = make(std::move(options));
  if (made.ok()) return "";
  EXPECT_EQ(made.error().exit, Exit::Recipe);
  return made.error().cause;
}

TEST(Options, AmountsOfMemory) {
  for (const Value& given : {Value("6GiB"), Value(int64_t{6} << 30), Value("6442450944")}) {
    const auto made = make({{"rank", Value(int64_t{4})}, {"budget", given}});
    ASSERT_TRUE(made.ok());
    EXPECT_EQ((*made)->find("budget")->as<int64_t>() ? *(*made)->find("budget")->as<int64_t>() : 0, int64_t{6} << 30);
  }
  for (const Value& given : {Value("6 apples"), Value(int64_t{0}), Value(true), Value("")})
    EXPECT_NE(cause({{"budget", given}}).find("'budget' of lora must be an amount of memory like \"24GiB\", or a number of bytes, not "),
              std::string::npos);
}

TEST(Options, UnknownNames) {
  EXPECT_EQ(cause({{"rnak", Value(int64_t{1})}}), "recipe.lua:14: unknown option 'rnak' of lora; did you mean 'rank'?");
  EXPECT_EQ(cause({{"r", Value(int64_t{1})}}), "recipe.lua:14: unknown option 'r' of lora; did you mean 'rank'?");
  EXPECT_EQ(cause({{"zzzzzz", Value(int64_t{1})}}), "recipe.lua:14: unknown option 'zzzzzz' of lora");
  const auto none = make({{"x", Value(int64_t{1})}}, "bare");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().hint, "bare has no options");
}

TEST(Options, WrongValues) {
  EXPECT_EQ(cause({{"rank", Value("four")}}), "recipe.lua:14: 'rank' of lora must be a whole number in [1, 512], not 'four'");
  EXPECT_EQ(cause({{"rank", Value(int64_t{0})}}), "recipe.lua:14: 'rank' of lora must be a whole number in [1, 512], not 0");
  EXPECT_EQ(cause({{"rank", Value(4.5)}}), "recipe.lua:14: 'rank' of lora must be a whole number in [1, 512], not 4.5");
  EXPECT_EQ(cause({{"lr", Value(int64_t{0})}}), "recipe.lua:14: 'lr' of lora must be a number in (0, 1], or a schedule, not 0");
  EXPECT_EQ(cause({{"lr", Value(std::numeric_limits<double>::quiet_NaN())}}),
            "recipe.lua:14: 'lr' of lora must be a number in (0, 1], or a schedule, not nan");
  EXPECT_EQ(cause({{"merge", Value(int64_t{1})}}), "recipe.lua:14: 'merge' of lora must be true or false, not 1");
  EXPECT_EQ(cause({{"note", Value(true)}}), "recipe.lua:14: 'note' of lora must be a string, not true");
  EXPECT_EQ(cause({{"targets", Value(List{Value("a"), Value(int64_t{1})})}}),
            "recipe.lua:14: 'targets' of lora must be a string or a list of strings, not { 'a', 1 }");
  EXPECT_EQ(cause({{"betas", Value(List{Value(0.9)})}}),
            "recipe.lua:14: 'betas' of lora must be a list of 2 numbers in [0, 1), not { 0.9 }");
  EXPECT_EQ(cause({{"betas", Value(List{Value(0.9), Value(1.0)})}}),
            "recipe.lua:14: 'betas' of lora must be a list of 2 numbers in [0, 1), not { 0.9, 1 }");
  EXPECT_EQ(cause({{"mode", Value("c")}}), "recipe.lua:15: 'mode' of lora must be 'a' or 'b', not 'c'");
  EXPECT_EQ(cause({{"alpha", Value(Table{{"x", Value(true)}})}}), "recipe.lua:14: 'alpha' of lora must be a number, not a table");
  EXPECT_EQ(cause({{"path", Value("")}}), "recipe.lua:14: 'path' of lora must be a path, not ''");
  EXPECT_EQ(cause({{"path", Value("/no/such/folder")}}), "recipe.lua:14: 'path' of lora: there is no '/no/such/folder'");
}

TEST(Options, Schedules) {
  const Schedule schedule{"cosine { peak = 0.5 }", {0.25, 0.5, 0.125}};
  EXPECT_EQ(cause({{"alpha", Value(schedule)}}), "recipe.lua:14: 'alpha' of lora must be a number, not cosine { peak = 0.5 }");
  EXPECT_EQ(cause({{"note", Value(schedule)}}), "recipe.lua:14: 'note' of lora must be a string, not cosine { peak = 0.5 }");
  EXPECT_EQ(cause({{"lr", Value(Schedule{"linear", {0.5, 2.0}})}}),
            "recipe.lua:14: 'lr' of lora must be a number in (0, 1], or a schedule; at step 2 linear is 2");
  EXPECT_EQ(cause({{"warm", Value(Schedule{"s", {1.0, 1.5}})}}),
            "recipe.lua:14: 'warm' of lora must be a whole number, or a schedule; at step 2 s is 1.5");

  const auto made = make({{"rank", Value(int64_t{4})}, {"lr", Value(schedule)}});
  ASSERT_TRUE(made.ok());
  const Options& options = **made;
  EXPECT_EQ(options.schedule("lr")->text, schedule.text);
  EXPECT_EQ(options.schedule("lr")->table, schedule.table);
  EXPECT_EQ(options.schedule("alpha"), nullptr);
  EXPECT_EQ(options.number("lr", 2), 0.5);
  EXPECT_EQ(options.number("lr", 100), 0.125);
  EXPECT_EQ(options.number("rank", 7), 4.0);
  EXPECT_EQ(options.number("note", 1), std::nullopt);
  double value = 0;
  EXPECT_EQ(options.table()->number(options.table()->handle, "lr", &value), GALLEY_OK);
  EXPECT_EQ(value, 0.25);
}

TEST(Options, RequiredOnesAreAskedFor) {
  const auto made = make({});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().cause, "recipe.lua:14: 'rank' of lora is missing");
  EXPECT_EQ(made.error().hint, "it must be a whole number in [1, 512]: Rows of A.");
}

TEST(Options, WhatAPluginReads) {
  const auto made = make({{"rank", Value(8.0)},
                          {"targets", Value("q_proj")},
                          {"path", Value(std::filesystem::temp_directory_path().string())},
                          {"note", Value()}});
  ASSERT_TRUE(made.ok()) << made.error().cause;
  const galley_options* t = (*made)->table();
  int64_t integer = 0;
  double number = 0;
  int32_t boolean = 7;
  const char* text = nullptr;
  uint64_t n = 0;
  EXPECT_EQ(t->integer(t->handle, "rank", &integer), GALLEY_OK);
  EXPECT_EQ(integer, 8);
  EXPECT_EQ(t->number(t->handle, "rank", &number), GALLEY_OK);
  EXPECT_EQ(number, 8.0);
  EXPECT_EQ(t->number(t->handle, "lr", &number), GALLEY_OK);
  EXPECT_EQ(number, 1e-3);
  EXPECT_EQ(t->boolean(t->handle, "merge", &boolean), GALLEY_OK);
  EXPECT_EQ(boolean, 0);
  EXPECT_EQ(t->string(t->handle, "mode", &text), GALLEY_OK);
  EXPECT_STREQ(text, "a");
  EXPECT_EQ(t->count(t->handle, "targets", &n), GALLEY_OK);
  EXPECT_EQ(n, 1u);
  EXPECT_EQ(t->string_at(t->handle, "targets", 0, &text), GALLEY_OK);
  EXPECT_STREQ(text, "q_proj");
  EXPECT_EQ(t->number_at(t->handle, "betas", 1, &number), GALLEY_OK);
  EXPECT_EQ(number, 0.95);
  EXPECT_EQ(t->count(t->handle, "rank", &n), GALLEY_OK);
  EXPECT_EQ(n, 1u);

  // What has no value, or another type, says so and leaves outputs alone.
  number = 5;
  text = "before";
  EXPECT_EQ(t->number(t->handle, "alpha", &number), GALLEY_INVALID);
  EXPECT_EQ(t->number(t->handle, "mode", &number), GALLEY_INVALID);
  EXPECT_EQ(t->number_at(t->handle, "betas", 2, &number), GALLEY_INVALID);
  EXPECT_EQ(t->string(t->handle, "note", &text), GALLEY_INVALID);
  EXPECT_EQ(t->string(t->handle, "rank", &text), GALLEY_INVALID);
  EXPECT_EQ(t->count(t->handle, "alpha", &n), GALLEY_INVALID);
  EXPECT_EQ(t->count(t->handle, "nothing", &n), GALLEY_INVALID);
  EXPECT_EQ(number, 5);
  EXPECT_STREQ(text, "before");
}

}  // namespace
}  // namespace galley
