#include "host/recipe/paths.hpp"

#include <algorithm>

#include "host/base/below.hpp"
#include "host/base/glob.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// canonical() of what exists, the rest appended without "." and "..": so a pattern or a file yet to be written has a place too.
Result<fs::path> real_path(const fs::path& path) {
  std::error_code code;
  fs::path real = fs::weakly_canonical(path, code);
  if (code) return recipe_error("cannot resolve '" + path.string() + "': " + code.message());
  if (!real.has_filename()) real = real.parent_path();  // "folder/" is "folder"; "/" stays
  return real;
}

/// The folder in which a pattern begins; any other path as it is.
fs::path before_wildcards(const fs::path& path) {
  fs::path out;
  for (const fs::path& part : path) {
    if (is_glob(part.string())) break;
    out /= part;
  }
  return out;
}

}  // namespace

Error leads_out(const std::string& name, const fs::path& real) {
  return recipe_error("'" + name + "' leads out of the recipe's folder, to " + real.string(),
                      "--confine keeps a recipe in its folder; let it ask for other files: arg(\"path\"), and --set path=…");
}

PathRules::PathRules(const fs::path& folder, const fs::path& directory, std::vector<std::string> given, Confine confine)
    : folder_(fs::absolute(folder)), directory_(fs::absolute(directory)), given_(std::move(given)), confine_(confine) {
  // The longest text first: below "a/b", "a/b" counts and not "a".
  std::sort(given_.begin(), given_.end(), [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  if (confine == Confine::No) return;
  std::vector<fs::path> paths = {folder_};
  for (const std::string& text : given_)
    if (!text.empty()) paths.push_back(before_wildcards(directory_ / text));
  for (const fs::path& path : paths) {
    Result<fs::path> real = real_path(path);
    roots_.push_back(real ? *std::move(real) : path);  // a path without a real one, too long for example, holds nothing
  }
}

Result<fs::path> PathRules::resolve(const std::string& text) const {
  if (text.empty()) return recipe_error("a path is empty");
  if (text.find('\0') != std::string::npos) return recipe_error("a path contains a zero byte");
  const auto below = [&](const std::string& given) {
    return !given.empty() && (text == given || text.starts_with(given.ends_with('/') ? given : given + "/"));
  };
  const auto given = std::find_if(given_.begin(), given_.end(), below);
  fs::path real = TRY(real_path((given == given_.end() ? folder_ : directory_) / text));
  if (confine_ == Confine::No) return real;
  const fs::path root = TRY(real_path(given == given_.end() ? folder_ : directory_ / *given));
  if (is_below(real, root)) return real;
  if (given == given_.end()) return leads_out(text, real);
  return recipe_error("'" + text + "' leads out of '" + *given + "', which --set gives, to " + real.string());
}

Status PathRules::check_links(const fs::path& resolved) const {
  if (confine_ == Confine::No) return ok();
  const auto holds = [](const fs::path& path) { return [&path](const fs::path& root) { return is_below(path, root); }; };
  // What --set gives is the person's: the links in a folder of Hugging Face's cache lead out of it.
  if (std::any_of(roots_.begin() + 1, roots_.end(), holds(resolved))) return ok();
  std::error_code error;
  if (!fs::is_directory(resolved, error)) return ok();
  for (fs::recursive_directory_iterator at(resolved, error), end; !error && at != end; at.increment(error)) {
    std::error_code none;
    if (!at->is_symlink(none)) continue;
    const fs::path real = fs::canonical(at->path(), none);
    if (none) continue;  // a link to nothing: whoever opens it says so
    if (std::none_of(roots_.begin(), roots_.end(), holds(real)))
      return leads_out(at->path().lexically_relative(roots_.front()).string(), real);
  }
  if (error) return recipe_error("cannot list '" + resolved.string() + "': " + error.message());
  return ok();
}

}  // namespace galley
