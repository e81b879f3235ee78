// A folder of its own for a test, gone when the test is over.
#pragma once

#include <stdlib.h>

#include <cassert>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace galley {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "galley-test-XXXXXX").string();
    const char* made = ::mkdtemp(name.data());
    assert(made != nullptr);
    path_ = made != nullptr ? std::filesystem::canonical(made) : "";
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  /// Writes a file, with the directories on its way, and returns its path.
  std::filesystem::path put(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// The folder of the reference cases that lie in this repository.
inline std::filesystem::path reference_cases() {
  const char* source = std::getenv("GALLEY_SOURCE");
  return std::filesystem::path(source ? source : ".") / "tests" / "fixtures";
}

}  // namespace galley
