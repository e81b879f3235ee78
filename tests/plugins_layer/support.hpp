// What tests of manifests and the loader share: manifests from text, folders of plugins made for one test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "host/plugins/loader.hpp"
#include "tests/base/folder.hpp"

namespace galley::test {

namespace fs = std::filesystem;

/// A test with a folder of its own.
class Folder : public testing::Test {
 protected:
  fs::path write(const fs::path& file, const std::string& text) const { return folder_.put(file.string(), text); }
  static std::string read(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  }
  /// The text with this test's folder as "…".
  std::string without_root(std::string text) const {
    const std::string name = root.string();
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name)) text.replace(at, name.size(), "…");
    return text;
  }

 private:
  galley::Folder folder_;

 protected:
  const fs::path root = folder_.path();
};

/// The build folder; tests run with it in the environment.
inline fs::path binary() {
  const char* folder = getenv("GALLEY_BINARY");
  return folder ? folder : ".";
}

}  // namespace galley::test
