#include "host/session/origins.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/tokens/cache.hpp"
#include "host/tokens/text_codec.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSmallFile = uint64_t{1} << 20;
/// More files of data than this are written down as one.
constexpr size_t kMostDataFiles = 10'000;

Result<std::string> hash_of_file(const fs::path& path) {
  const File file = TRY(File::open_read(path));
  std::vector<std::byte> buffer(size_t{1} << 20);
  KeyHash hash;
  uint64_t size = 0;
  while (const size_t n = TRY(file.read_some(buffer, size))) {
    hash.part(std::span(buffer).first(n));
    size += n;
  }
  hash.add(size);
  return hash.digits();
}

/// Regular files of a kind, in order.
template <class Iterator>
std::vector<fs::path> files_in(const fs::path& folder, std::string_view extension) {
  std::vector<fs::path> out;
  std::error_code error;
  for (Iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == extension && entry->is_regular_file(error)) out.push_back(entry->path());
  std::sort(out.begin(), out.end());
  return out;
}

Status add_file(const char* kind, const fs::path& path, std::vector<Origin>* out) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) out->push_back({kind, path.string(), TRY(hash_of_file(path))});
  return ok();
}

/// Configurations beside tensors; tensors themselves are compared as they lie in memory.
Status add_small_files(const fs::path& path, std::vector<Origin>* out) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return fs::file_size(path, error) <= kSmallFile && !error ? add_file("file", path, out) : ok();
  for (const fs::path& file : files_in<fs::directory_iterator>(path, ".json")) TRY_STATUS(add_file("file", file, out));
  return ok();
}

/// `doing`: what cannot be done then.
Error changed(const fs::path& directory, const std::string& what, const std::string& how, std::string hint, const char* doing = "resume") {
  return recipe_error(directory.string() + ": cannot " + doing + ": " + what + " " + how + " since the run began", std::move(hint));
}

struct Kind {
  const char *name, *noun, *hint;
};

const Kind& kind_of(const std::string& name) {
  static const Kind kinds[] = {
      {"data", "the data file", "put the file back as it was, or begin a new run"},
      {"model", "the base model's configuration", "put the file back as it was, or begin a new run"},
      {"tokenizer", "the tokenizer", "put the file back as it was, or begin a new run"},
      {"galley", "Galley's own Lua", "resume with the Galley that began the run, or begin a new run"},
      {"file", "the file", "put the file back as it was, or begin a new run"},
  };
  const auto found = std::find_if(std::begin(kinds), std::end(kinds), [&](const Kind& k) { return k.name == name; });
  return found == std::end(kinds) ? *std::prev(std::end(kinds)) : *found;
}

Status compare(const std::vector<Origin>& then, const std::vector<Origin>& now, const fs::path& directory, const char* doing = "resume") {
  const auto error = [&](const Origin& o, const char* how) {
    const Kind& kind = kind_of(o.kind);
    return changed(directory, std::string(kind.noun) + " '" + o.name + "'", how, kind.hint, doing);
  };
  std::map<std::pair<std::string, std::string>, std::string> today;
  for (const Origin& o : now) today[{o.kind, o.name}] = o.hash;
  std::set<std::pair<std::string, std::string>> known;  // a recipe may name a file twice
  for (const Origin& o : then) {
    const auto found = today.find({o.kind, o.name});
    if (found == today.end()) return error(o, "has gone");
    if (found->second != o.hash) return error(o, "has changed");
    known.insert({o.kind, o.name});
  }
  for (const Origin& o : now)
    if (!known.contains({o.kind, o.name})) return error(o, "has come");
  return ok();
}

/// What decides which model a run trains: its configuration, and small files that strategies read.
Status add_files_of_model(const Study& study, std::vector<Origin>* out) {
  if (!study.model.folder.empty()) TRY_STATUS(add_file("model", study.model.folder / "config.json", out));
  // Not the file: its tensors are compared as they lie in memory.
  if (study.model.gguf) {
    KeyHash hash;
    for (const auto& [key, json] : study.draft->run.config) hash.add(key + json);
    out->push_back({"model", study.model.origin, hash.digits()});
  }
  for (const auto& strategy : study.loaded) {
    for (const auto& [name, value] : strategy->options().values()) {
      const auto* path = value.as<std::string>();
      if (path && (name == "path" || name.ends_with("_path"))) TRY_STATUS(add_small_files(*path, out));
    }
  }
  return ok();
}

std::vector<Origin> of_kinds(const std::vector<Origin>& origins, bool data) {
  std::vector<Origin> out;
  for (const Origin& o : origins)
    if ((o.kind == "data") == data) out.push_back(o);
  return out;
}

/// Whether a file says something else than the record; one that is gone does not.
Result<bool> differs(const fs::path& file, const std::string& text) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  return TRY(read_text(file)) != text;
}

}  // namespace

Result<std::string> plugin_hash(const Manifest& manifest) {
  KeyHash hash;
  std::set<fs::path> files = {manifest.file, manifest.folder() / manifest.library};
  for (const KernelLibrary& library : manifest.kernel_libraries) files.insert(manifest.folder() / library.library);
  for (const fs::path& file : files) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) continue;  // a manifest may name libraries that are built for other processors only
    hash.add(file.filename().string());
    hash.add(TRY(hash_of_file(file)));
  }
  return hash.digits();
}

Result<std::vector<RunRecord::PluginUsed>> plugins_of(const Study& study) {
  std::vector<RunRecord::PluginUsed> out;
  for (const auto& p : study.plugins->all()) {
    if (!p->library) continue;
    const Manifest& m = p->manifest;
    // How processes join is no part of the run, which goes on with another number of them.
    if (!m.ranks.empty() && m.strategies.empty() && m.sources.empty()) continue;
    out.push_back({m.id, m.version, m.state_version, m.folder().string(), TRY(plugin_hash(m))});
  }
  return out;
}

Result<std::vector<Origin>> origins_of(const Study& study) {
  std::vector<Origin> out;
  TRY_STATUS(add_files_of_model(study, &out));
  const fs::path tokenizer = TRY(tokenizer_file(text_data(study.recipe), study.recipe));
  TRY_STATUS(add_file("tokenizer", tokenizer, &out));
  if (!tokenizer.empty()) TRY_STATUS(add_file("tokenizer", tokenizer.parent_path() / "tokenizer_config.json", &out));
  if (!study.recipe.evaluate.prompts.empty()) TRY_STATUS(add_file("prompts", study.recipe.evaluate.prompts, &out));
  KeyHash hash;
  for (const fs::path& folder : {study.installation.families.families, study.installation.families.library}) {
    for (const fs::path& file : files_in<fs::recursive_directory_iterator>(folder, ".lua")) {
      hash.add(file.lexically_relative(folder).string());
      hash.add(TRY(hash_of_file(file)));
    }
  }
  out.push_back({"galley", "models", hash.digits()});
  return out;
}

Result<std::vector<Origin>> origins_of(const Study& study, const Source& source) {
  std::vector<Origin> out;
  const Table& options = study.recipe.data.options;
  if (const auto path = options.find("path"); path != options.end() && path->second.as<std::string>())
    TRY_STATUS(add_file("data", *path->second.as<std::string>(), &out));
  const std::vector<DataFile> files = source.files();
  if (files.size() <= kMostDataFiles) {
    for (const DataFile& file : files) out.push_back({"data", file.path, file.hash});
    return out;
  }
  KeyHash hash;
  for (const DataFile& file : files) hash.add(file.path + file.hash);
  out.push_back({"data", "one of " + std::to_string(files.size()) + " files", hash.digits()});
  return out;
}

Status check_recipe(const RunRecord& record, const fs::path& directory) {
  const std::string way =
      "galley resume --recorded " + directory.string() + " continues with what the run has recorded; to use the new one, begin a new run";
  if (TRY(differs(directory / "recipe.lua", record.input.text)))
    return changed(directory, "its recipe.lua", "has changed",
                   "remove it, and it comes back as it was; for another recipe begin a new run");
  if (TRY(differs(record.recipe, record.input.text)))
    return changed(directory, "the recipe '" + record.recipe.string() + "'", "has changed", way);
  for (const auto& [path, text] : record.input.modules)
    if (TRY(differs(path, text))) return changed(directory, "the module '" + path + "'", "has changed", way);
  return ok();
}

Status check_origins(const RunRecord& record, const Study& study, const fs::path& directory) {
  const auto differ = [&](const std::string& what, const std::string& then, const std::string& now, const char* hint) {
    return recipe_error(directory.string() + ": cannot resume: " + what + " was " + then + " and is " + now + " now", hint);
  };
  if (record.version != GALLEY_VERSION)
    return differ("Galley", record.version, GALLEY_VERSION, "resume with the version that began the run, or begin a new run");
  if (record.machine != study.machine)
    return differ("the machine's instruction set", "'" + record.machine + "'", "'" + study.machine + "'",
                  "kernels of another one round differently; resume on a machine with the same");
  std::map<std::string, RunRecord::PluginUsed> plugins;
  for (auto& plugin : TRY(plugins_of(study))) plugins[plugin.id] = plugin;
  const char* const hint = "put the plugin back as it was, or begin a new run";
  for (const auto& then : record.plugins) {
    const std::string what = "the plugin '" + then.id + "'";
    const auto now = plugins.find(then.id);
    if (now == plugins.end()) return changed(directory, what + " of " + then.folder, "has gone", hint);
    const std::string where =
        now->second.folder == then.folder ? " in " + then.folder : " (then in " + then.folder + ", now in " + now->second.folder + ")";
    if (now->second.hash != then.hash) return changed(directory, what + where, "has changed", hint);
    plugins.erase(now);
  }
  if (!plugins.empty())
    return changed(directory, "the plugin '" + plugins.begin()->first + "' in " + plugins.begin()->second.folder, "has come",
                   "take it off the plugin path, or begin a new run");
  return compare(of_kinds(record.origins, false), TRY(origins_of(study)), directory);
}

Status check_files_of_model(const RunRecord& record, const Study& study, const fs::path& directory, const char* doing) {
  std::vector<Origin> then, now;
  for (const Origin& o : record.origins)
    if (o.kind == "model" || o.kind == "file") then.push_back(o);
  TRY_STATUS(add_files_of_model(study, &now));
  return compare(then, now, directory, doing);
}

Status check_data_files(const RunRecord& record, const Study& study, const Source& source, const fs::path& directory) {
  return compare(of_kinds(record.origins, true), TRY(origins_of(study, source)), directory);
}

}  // namespace galley
