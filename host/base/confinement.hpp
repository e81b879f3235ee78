// Which files may be read where something came from somebody else. A confinement names folders; while it lives, File::open_read() opens
// no file that really lies outside of them, whoever asks, and whatever links led to it: a reader that is written later is confined too.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// The folder in which links of a folder may lead: the folder itself, as a real path; of a snapshot in Hugging Face's cache, whose files
/// are links to ../../blobs, the model's folder there (models--ORG--NAME).
std::filesystem::path reach_of(const std::filesystem::path& folder);

/// "'name' leads out of the recipe's folder, to REAL". Exit code Recipe.
Error leads_out(const std::string& name, const std::string& what, const std::filesystem::path& real, const std::string& hint);

/// Several may live at once: what one of them holds may be read. [thread-safe]
class Confinement {
 public:
  /// `folders` are taken as real paths; of one that is not there, as far as it is. `what` and `hint` are for errors: "the recipe's folder".
  Confinement(const std::vector<std::filesystem::path>& folders, std::string what, std::string hint);
  ~Confinement();
  Confinement(const Confinement&) = delete;
  Confinement& operator=(const Confinement&) = delete;

  /// Whether a real path lies in one of its folders.
  bool holds(const std::filesystem::path& real) const;
  Error leads_out(const std::string& name, const std::filesystem::path& real) const { return galley::leads_out(name, what_, real, hint_); }

  /// What the person at the command line names, and what Galley comes with, may be read beside any confinement: a file, or a folder with
  /// all that lies in it (reach_of() it).
  static void lend(const std::filesystem::path& path);
  /// Of `names` in the folder, those that really lie in reach_of() it: for a folder in which one file may be read, what belongs to it.
  static void lend_beside(const std::filesystem::path& folder, std::span<const std::string_view> names);

  /// Whether there is any.
  static bool any();
  /// The error for a file or folder that none of them holds; `name` is what it was called. Without any, everything is right.
  static Status check_real(const std::filesystem::path& real, const std::string& name);
  /// The same for a path whose links have not been followed. One that leads nowhere is right: whoever opens it says so.
  static Status check(const std::filesystem::path& path);

 private:
  std::vector<std::string> roots_;
  std::string what_, hint_;
};

}  // namespace galley
