#include "host/commands/plugin.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "host/base/file.hpp"
#include "host/base/new_file.hpp"
#include "host/base/shell.hpp"
#include "host/plugins/manifest.hpp"
#include "host/session/study.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {

const char* const kPluginKinds = "optimizer, adapter, format, kernel, op, source, listener or c (an optimizer in C)";

namespace {

namespace fs = std::filesystem;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// A name as part of C identifiers and of names of ops: "my-step" is "my_step".
std::string underscored(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return !is_word(c); }, '_');
  return name;
}

/// The template's text with another id: where the id is a text or begins one, a file's name, the name of the project or of a kind of data,
/// which recipes write as a word; and where it begins an identifier.
std::string renamed(std::string text, const std::string& kind, const std::string& id, const std::string& name) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
      const bool within = is_word(from.front()) && at > 0 && is_word(text[at - 1]);
      if (!within) text.replace(at, from.size(), to);
      at += within ? from.size() : to.size();
    }
  };
  if (kind == "source")
    for (const auto& [before, after] : {std::pair{"data.", ""}, {"name = \"", "\""}, {">(\"", "\")"}})
      replace(before + id + after, before + underscored(name) + after);
  replace(underscored(id) + "_", underscored(name) + "_");
  for (const char* before : {"\"", "/", "project("})
    for (const char* after : {"\"", ".", " ", "(", ":", "-"}) replace(before + id + after, before + name + after);
  for (const char* after : {"-cuda", "` runs"}) replace(id + after, name + after);
  return text;
}

Status check_name(const std::string& name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; };
  if (!name.empty() && std::ranges::all_of(name, plain) && name.front() >= 'a' && name.front() <= 'z') return ok();
  return recipe_error("galley plugin new: '" + name + "' is no name for a plugin",
                      "take lower-case letters, digits, '-' and '_', a letter first: my-optimizer");
}

}  // namespace

Status command_plugin(const CommandLine& a) {
  if (a.positional.size() != 2 || a.positional[0] != "new")
    return recipe_error("galley plugin: " + (a.positional[0] == "new" ? std::string("the plugin's name is missing")
                                                                      : "there is no '" + a.positional[0] + "'"),
                        "usage: galley plugin new NAME --kind KIND");
  const std::string name = a.positional[1], kind = a.get("--kind", "optimizer");
  TRY_STATUS(check_name(name));
  const fs::path templates = find_installation().templates;
  std::error_code error;
  std::vector<std::string> kinds;
  for (const fs::directory_entry& entry : fs::directory_iterator(templates, error)) kinds.push_back(entry.path().filename());
  if (kinds.empty())
    return run_error("there are no templates in " + templates.string(),
                     "install the SDK: cmake --install BUILD --component sdk, or Debian's galley-sdk");
  if (std::ranges::find(kinds, kind) == kinds.end())
    return recipe_error("galley plugin new: there is no kind '" + kind + "'", std::string("kinds are ") + kPluginKinds);
  const fs::path from = templates / kind, out = fs::absolute(a.get("--out", name), error);
  if (fs::exists(out, error)) return recipe_error("galley plugin new: " + out.string() + " is there already", "give another --out");
  const std::string id = TRY(read_manifest(from / "plugin.toml")).id;
  const NewFolder aside = TRY(NewFolder::beside(out));
  const fs::path made = aside.path() / "made";
  fs::create_directory(made, error);
  for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
    const std::string text = TRY(read_text(entry.path(), UINT64_C(1) << 20));
    File file = TRY(File::create(made / entry.path().filename()));
    TRY_STATUS(file.write(renamed(text, kind, id, name)));
  }
  fs::rename(made, out, error);
  if (error) return run_error("cannot write " + out.string() + ": " + error.message());
  const std::string folder = shell_word(a.get("--out", name));
  print_lines(
      "%s\n\n  cd %s\n  cmake -B build -D CMAKE_PREFIX_PATH=PREFIX && cmake --build build    where PREFIX is where Galley is installed\n"
      "  galley check build/plugins/%s\n\nThen change it: what it does is said in plugin.toml and at the head of each file.\n",
      ("a plugin of the kind " + kind + " in " + folder + ":").c_str(), folder.c_str(), name.c_str());
  return ok();
}

}  // namespace galley
