// What the tests of the sandbox share: running a text, and files to require.
#pragma once

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "host/lua/sandbox.hpp"

namespace galley {

/// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "galley-lua-XXXXXX").string();
    path_ = std::filesystem::canonical(mkdtemp(pattern.data()));
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

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
