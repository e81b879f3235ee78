// Confines which files may be read when something came from somebody else. A confinement names folders. While it lives, File::open_read()
// opens no file that really lies outside of them, whoever asks and whatever links led to it: new readers are confined too.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// Returns the folder to which links of a folder may lead: the folder itself, as a real path. For a snapshot in Hugging Face's cache, whose
/// files are links to ../../blobs, it is the model's folder there (models--ORG--NAME).
std::filesystem::path reach_of(const std::filesystem::path& folder);

/// Makes the error "'name' leads out of the recipe's folder, to REAL", exit code Recipe.
Error leads_out(const std::string& name, const std::string& what, const std::filesystem::path& real, const std::string& hint);

/// Allows reads below its folders only. If several live at once, a read that one of them allows is allowed. [thread-safe]
class Confinement {
 public:
  /// Resolves `folders` to real paths, as far as they exist. `what` and `hint` are for errors: "the recipe's folder".
  Confinement(const std::vector<std::filesystem::path>& folders, std::string what, std::string hint);
  ~Confinement();
  Confinement(const Confinement&) = delete;
  Confinement& operator=(const Confinement&) = delete;

  /// Returns whether a real path lies in one of its folders.
  bool holds(const std::filesystem::path& real) const;
  Error leads_out(const std::string& name, const std::filesystem::path& real) const { return galley::leads_out(name, what_, real, hint_); }

  /// Allows reads of a file, or of all that lies in a folder (reach_of() it), beside any confinement: for what the person at the command
  /// line names, and for Galley's own files.
  static void lend(const std::filesystem::path& path);
  /// Allows reads of those `names` in the folder that really lie in reach_of() it: files that belong to one that may be read.
  static void lend_beside(const std::filesystem::path& folder, std::span<const std::string_view> names);

  /// Returns whether any confinement lives.
  static bool any();
  /// Returns an error for a file or folder that no confinement allows; `name` is what it was called. Without confinements all are allowed.
  static Status check_real(const std::filesystem::path& real, const std::string& name);
  /// Does the same for a path whose links have not been followed. A path that leads nowhere is allowed: whoever opens it reports that.
  static Status check(const std::filesystem::path& path);

 private:
  std::vector<std::string> roots_;
  std::string what_, hint_;
};

}  // namespace galley
