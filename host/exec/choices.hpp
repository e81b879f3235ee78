// What kernels measured and chose while they were prepared (recipe: tune = true): texts of their own under keys of their own. Whoever has
// the same choices computes the same bytes.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "galley/kernel.h"
#include "host/base/result.hpp"

namespace galley {

class Choices {
 public:
  Choices();
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  /// Takes what a file has; one that is not there has nothing.
  Status read(const std::filesystem::path& file);
  Status write(const std::filesystem::path& file) const;
  /// Whether something was chosen that no file had.
  bool changed() const { return changed_; }
  /// As kernels see them. They outlive the kernels' preparation.
  const galley_choices* table() const { return &table_; }

 private:
  static const char* find(void* self, const char* key);
  static void keep(void* self, const char* key, const char* choice);

  std::map<std::string, std::string, std::less<>> all_;
  bool changed_ = false;
  galley_choices table_;
};

}  // namespace galley
