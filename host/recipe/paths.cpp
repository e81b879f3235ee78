#include "host/recipe/paths.hpp"

#include <algorithm>

namespace galley {
namespace {

namespace fs = std::filesystem;

bool is_below(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

/// canonical() of what exists, the rest appended without "." and "..": so a pattern or a file yet to be written has a place too.
Result<fs::path> real_path(const fs::path& path) {
  std::error_code code;
  fs::path real = fs::weakly_canonical(path, code);
  if (code) return recipe_error("cannot resolve '" + path.string() + "': " + code.message());
  if (!real.has_filename()) real = real.parent_path();  // "folder/" is "folder"; "/" stays
  return real;
}

}  // namespace

PathRules::PathRules(const fs::path& folder, const fs::path& directory, std::vector<std::string> given)
    : folder_(fs::absolute(folder)), directory_(fs::absolute(directory)), given_(std::move(given)) {
  // The longest text first: below "a/b", "a/b" counts and not "a".
  std::sort(given_.begin(), given_.end(), [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

Result<fs::path> PathRules::resolve(const std::string& text) const {
  if (text.empty()) return recipe_error("a path is empty");
  if (text.find('\0') != std::string::npos) return recipe_error("a path contains a zero byte");
  for (const std::string& given : given_) {
    if (given.empty()) continue;
    const bool below = text.starts_with(given.ends_with('/') ? given : given + "/");
    if (text != given && !below) continue;
    const fs::path root = TRY(real_path(directory_ / given));
    fs::path real = TRY(real_path(directory_ / text));
    if (is_below(real, root)) return real;
    return recipe_error("'" + text + "' leads out of '" + given + "', which --set gives", "its real path is " + real.string());
  }
  const fs::path root = TRY(real_path(folder_));
  fs::path real = TRY(real_path(folder_ / text));
  if (is_below(real, root)) return real;
  return recipe_error("'" + text + "' leads out of the recipe's folder",
                      "a recipe names files below its own folder; let it ask for others: arg(\"path\"), and --set path=…");
}

}  // namespace galley
