// Keeps what kernels have measured and chosen while they were prepared (recipe: tune = true): their own texts under their own keys. With
// the same choices a run computes the same bytes.
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

  /// Adds the choices of a file; a missing file has none.
  Status read(const std::filesystem::path& file);
  Status write(const std::filesystem::path& file) const;
  /// Returns whether something was chosen that no file had.
  bool changed() const { return changed_; }
  /// Returns the choices as kernels see them. They must outlive the kernels' preparation.
  const galley_choices* table() const { return &table_; }

 private:
  static const char* find(void* self, const char* key);
  static void keep(void* self, const char* key, const char* choice);

  std::map<std::string, std::string, std::less<>> all_;
  bool changed_ = false;
  galley_choices table_;
};

}  // namespace galley
