#include "host/recipe/paths.hpp"

#include <algorithm>

#include "host/base/below.hpp"
#include "host/base/glob.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecipesFolder = "the recipe's folder";
constexpr const char* kHint = "--confine keeps a recipe in its folder; let it ask for other files: arg(\"path\"), and --set path=…";

/// canonical() of what exists, the rest appended without "." and "..": so a pattern or a file yet to be written has a place too.
Result<fs::path> real_path(const fs::path& path) {
  std::error_code code;
  fs::path real = fs::weakly_canonical(path, code);
  if (code) return recipe_error("cannot resolve '" + path.string() + "': " + code.message());
  if (!real.has_filename()) real = real.parent_path();  // "folder/" is "folder"; "/" stays
  return real;
}

/// Where to look for the file: a link to one keeps its name.
fs::path as_named(const fs::path& path, const fs::path& real) {
  std::error_code error;
  if (!fs::is_symlink(path, error) || !fs::is_regular_file(real, error)) return real;
  const Result<fs::path> folder = real_path(path.parent_path());
  return folder ? *folder / path.filename() : real;
}

bool dots_and_slashes(const std::string& text) { return text.find_first_not_of("./") == std::string::npos; }

}  // namespace

PathRules::PathRules(const fs::path& folder, const fs::path& directory, std::vector<std::string> given, Confine confine,
                     std::shared_ptr<const Confinement> within)
    : folder_(fs::absolute(folder)),
      directory_(fs::absolute(directory)),
      given_(std::move(given)),
      confine_(confine),
      within_(std::move(within)) {
  if (confine_ == Confine::Yes && !within_) std::erase_if(given_, dots_and_slashes);
  // The longest text first: below "a/b", "a/b" counts and not "a".
  std::sort(given_.begin(), given_.end(), [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

Result<fs::path> PathRules::resolve(const std::string& text) {
  if (text.empty()) return recipe_error("a path is empty");
  if (text.find('\0') != std::string::npos) return recipe_error("a path contains a zero byte");
  const auto below = [&](const std::string& given) {
    return !given.empty() && (text == given || text.starts_with(given.ends_with('/') ? given : given + "/"));
  };
  const auto given = std::find_if(given_.begin(), given_.end(), below);
  const fs::path path = (given == given_.end() ? folder_ : directory_) / text, real = TRY(real_path(path));
  if (within_ && !within_->holds(real)) return within_->leads_out(text, real);
  if (within_ || confine_ == Confine::No) return as_named(path, real);
  const fs::path root = TRY(real_path(given == given_.end() ? folder_ : directory_ / *given));
  if (is_below(real, given == given_.end() ? root : reach_of(root))) {
    if (given != given_.end()) lent_.insert(before_wildcards(directory_ / *given));
    return as_named(path, real);
  }
  if (given == given_.end()) return leads_out(text, kRecipesFolder, real, kHint);
  return recipe_error("'" + text + "' leads out of '" + *given + "', which --set gives, to " + real.string());
}

std::shared_ptr<const Confinement> PathRules::confinement() const {
  if (within_ || confine_ == Confine::No) return within_;
  std::vector<fs::path> folders = {folder_};
  std::error_code error;
  for (const fs::path& path : lent_) folders.push_back(fs::is_directory(path, error) ? reach_of(path) : path);
  return std::make_shared<Confinement>(folders, kRecipesFolder, kHint);
}

}  // namespace galley
