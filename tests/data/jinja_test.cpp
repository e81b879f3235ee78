// The interpreter of Jinja on texts that would keep Lua's patterns busy: within one of them no limit of time holds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "host/lua/sandbox.hpp"

namespace galley {
namespace {

/// What the text of Lua returns.
std::string run(const std::string& text) {
  const auto box = Sandbox::create({}, {std::filesystem::path(std::getenv("GALLEY_SOURCE")) / "models" / "lib"}).value();
  const Status status = box->run_text("local jinja = require 'jinja' " + text, "t.lua", 1);
  if (!status.ok()) return "error: " + status.error().cause;
  const char* result = lua_tostring(box->state(), -1);
  return result ? result : "nil";
}

TEST(Jinja, NumbersOfManyDigits) {
  EXPECT_EQ(run("return jinja.parse('{{ s | int }}'):render({ s = ('0'):rep(4000) .. '7' })"), "7");
  EXPECT_EQ(run("return (select(2, jinja.parse('{{ s | int }}'):render({ s = ('1'):rep(1e5) .. 'x' })))"),
            "line 1: a number of 100001 characters is not supported");
}

TEST(Jinja, BlocksBehindALongLine) {
  EXPECT_EQ(run("return jinja.parse(('x'):rep(6e4) .. '\\n  {% if true %}y{% endif %}'):render({}):sub(-3)"), "x\ny");
  EXPECT_EQ(run("return jinja.parse('  {% if true %}y{% endif %} {% if true %}z{% endif %}'):render({})"), "y z");
}

TEST(Jinja, TablesComeInTheOrderOfTheirKeys) {
  EXPECT_EQ(
      run("return jinja.parse('{{ d | tojson(sort_keys=true) }}{% for k in d %}{{ k }}{% endfor %}'):render({ d = { b = 1, a = 2 } })"),
      "{\"a\": 2, \"b\": 1}ab");
}

TEST(Jinja, CallsTakeListsAndDicts) {
  EXPECT_EQ(run("return jinja.parse('{{ dict(*[[[1, 2]]], **{\"b\": 3}) }} {{ range(*x)|list }}'):render({ x = { 2, 4 } })"),
            "{1: 2, 'b': 3} [2, 3]");
  EXPECT_EQ(
      run("return jinja.parse('{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[7], **{\"c\": 9}) }}'):render({})"),
      "729");
}

TEST(Jinja, BlocksOfGenerationHaveTheirPlace) {
  const std::string show =
      ":render({}) local out = text for _, s in ipairs(spans) do out = out .. '|' .. s[1] .. ',' .. s[2] end return out .. "
      "(unplaced and '|' .. unplaced or '')";
  const auto spans = [&](const std::string& text) { return run("local text, spans, unplaced = jinja.parse([=[" + text + "]=])" + show); };
  EXPECT_EQ(spans("a{% generation %}bc{% endgeneration %}d"), "abcd|1,3");
  EXPECT_EQ(spans("{% for i in [1, 2] %}é{%- generation -%} {{ i }}! {%- endgeneration %};{% endfor %}"), "é1!;é2!;|2,4|7,9");
  EXPECT_EQ(spans("{% generation %}{% if false %}x{% endif %}{% endgeneration %}"), "|0,0");
  // In a value it has no place.
  EXPECT_EQ(spans("{% macro m() %}{% generation %}b{% endgeneration %}{% endmacro %}a{{ m() }}"), "ab|1");
  EXPECT_EQ(spans("{% set x %}\n{% generation %}b{% endgeneration %}{% endset %}a{{ x }}"), "ab|2");
}

TEST(Jinja, TheDayIsGiven) {
  const auto day = [&](const std::string& format) {
    return run("return jinja.parse('{{ strftime_now(\"" + format +
               "\") }}'):render({}, { year = 2024, month = 2, day = 29, hour = 15, minute = 4 })");
  };
  EXPECT_EQ(day("%d %b %Y"), "29 Feb 2024");
  EXPECT_EQ(day("%A, %-d %B %y %I:%M %p %j %U %W %u %w %%"), "Thursday, 29 February 24 03:04 PM 060 08 09 4 4 %");
  EXPECT_EQ(run("return (select(2, jinja.parse('{{ strftime_now(\"%Q\") }}'):render({}, { year = 2024, month = 2, day = 29 })))"),
            "line 1: '%Q' in a format of strftime_now is not supported");
  EXPECT_EQ(run("return (select(2, jinja.parse('{{ strftime_now() }}'):render({}, { year = 2024, month = 2, day = 29 })))"),
            "line 1: strftime_now takes a format");
  EXPECT_EQ(run("return jinja.parse('{{ strftime_now is defined }}'):render({})"), "False");
}

TEST(Jinja, LongTextsTakeTimeInProportion) {
  EXPECT_EQ(run("return #jinja.parse('{% for i in range(30000) %}abcdefgh{% endfor %}'):render({})"), "240000");
}

}  // namespace
}  // namespace galley
