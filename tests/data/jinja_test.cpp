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

}  // namespace
}  // namespace galley
