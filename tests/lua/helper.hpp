// What the tests of the sandbox share: running a text.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "host/lua/sandbox.hpp"
#include "tests/base/folder.hpp"

namespace galley {

inline std::unique_ptr<Sandbox> sandbox(const LuaLimits& limits = {}, std::vector<std::filesystem::path> roots = {},
                                        Sandbox::Reach reach = Sandbox::Reach::Roots) {
  Result<std::unique_ptr<Sandbox>> made = Sandbox::create(limits, std::move(roots), reach);
  EXPECT_TRUE(made.ok()) << made.error().cause;
  return std::move(made).value();
}

/// What the text returns, as text; or "error: <cause>".
inline std::string run(Sandbox& box, const std::string& text) {
  const Status status = box.run_text(text, "t.lua", 1);
  if (!status) return "error: " + status.error().cause;
  size_t size = 0;
  const char* result = luaL_tolstring(box.state(), -1, &size);
  std::string answer(result, size);
  lua_pop(box.state(), 2);
  return answer;
}

inline std::string run(const std::string& text) { return run(*sandbox(), text); }

}  // namespace galley
