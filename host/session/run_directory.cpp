#include "host/session/run_directory.hpp"

#include <toml++/toml.h>
#include <sstream>

#include "host/base/below.hpp"
#include "host/base/new_file.hpp"
#include "host/session/mark.hpp"

namespace galley {
namespace {

constexpr int64_t format_version = 2;

std::string text_of(const toml::table& table) {
  std::ostringstream out;
  out << toml::toml_formatter(table, toml::toml_formatter::default_flags & ~toml::format_flags::allow_literal_strings) << "\n";
  return out.str();
}

Result<std::string> text_of(const RunRecord& r) {
  toml::table sets, out;
  for (const auto& [name, value] : r.sets) sets.insert(name, value);
  toml::array modules, plugins, strategies, origins;
  for (const auto& m : r.modules) modules.push_back(toml::table{{"name", m.name}, {"path", m.path}, {"text", m.text}});
  for (const auto& p : r.plugins)
    plugins.push_back(
        toml::table{{"id", p.id}, {"version", p.version}, {"state_version", p.state_version}, {"folder", p.folder}, {"hash", p.hash}});
  for (const auto& s : r.strategies) strategies.push_back(toml::table{{"name", s.name}, {"options", s.options}});
  toml::array data;
  for (const auto& d : r.data) {
    toml::table facts{{"kind", d.kind}};
    for (const auto& [name, value] : d.facts) facts.insert(name, value);
    data.push_back(std::move(facts));
  }
  out.insert("format", format_version);
  out.insert("galley", r.version);
  out.insert("seed", static_cast<int64_t>(r.seed));
  out.insert("steps", r.steps);
  out.insert("head_rows", r.head_rows);
  out.insert("device", r.device);
  out.insert("machine", r.machine);
  out.insert("recipe", toml::table{{"path", r.recipe.string()},
                                   {"working_directory", r.working_directory.string()},
                                   {"confined", r.confined},
                                   {"sets", std::move(sets)},
                                   {"text", r.recipe_text},
                                   {"modules", std::move(modules)}});
  out.insert("plugins", std::move(plugins));
  toml::array kernels;
  for (const std::string& k : r.kernels) kernels.push_back(k);
  out.insert("kernels", std::move(kernels));
  out.insert("strategies", std::move(strategies));
  out.insert("data", std::move(data));
  for (const Origin& o : r.origins) origins.push_back(toml::table{{"kind", o.kind}, {"name", o.name}, {"hash", o.hash}});
  out.insert("origins", std::move(origins));
  toml::parse_result target = toml::parse(r.target);
  if (!target) return run_error("the target is no TOML: " + std::string(target.error().description()));
  out.insert("target", std::move(target).table());
  return text_of(out);
}

/// Absolute, without a slash at its end.
std::filesystem::path normal(const std::filesystem::path& given) {
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::absolute(given, error).lexically_normal();
  return directory.has_filename() ? directory : directory.parent_path();
}

Error occupied(const std::filesystem::path& directory) {
  std::error_code error;
  const bool run = std::filesystem::exists(directory / "run.toml", error);
  return recipe_error(
      directory.string() + " is not empty",
      "name a new directory with --out" + (run ? ", or continue the run in it: galley resume " + directory.string() : std::string()));
}

Result<std::string> text_field(const toml::table& table, const char* key, const std::filesystem::path& file) {
  const auto value = table[key].value<std::string>();
  if (!value) return run_error(file.string() + ": no '" + key + "'", "the file is not one that Galley wrote");
  return *value;
}

}  // namespace

Status check_vacant(const std::filesystem::path& given) {
  if (given.empty()) return recipe_error("--out '' names no directory");
  std::error_code error;
  const std::filesystem::path directory = normal(given);
  const bool link = std::filesystem::is_symlink(std::filesystem::symlink_status(directory, error));
  if (link && !std::filesystem::exists(directory, error))
    return recipe_error(directory.string() + " is a link that leads to no directory", "name a new directory, or take the link away");
  if (!std::filesystem::exists(directory, error)) return ok();
  if (!std::filesystem::is_directory(directory, error)) return recipe_error(directory.string() + " is not a directory");
  if (!std::filesystem::is_empty(directory, error)) return occupied(directory);
  if (error) return run_error("cannot look into " + directory.string() + ": " + error.message());
  return ok();
}

Status create_run(const std::filesystem::path& given, const RunRecord& record, const std::function<void(const std::string&)>& unmarked) {
  TRY_STATUS(check_vacant(given));
  std::error_code error;
  const std::filesystem::path clean = normal(given);
  std::filesystem::create_directories(clean.parent_path(), error);
  if (error) return run_error("cannot create " + clean.parent_path().string() + ": " + error.message());
  std::string text = TRY(text_of(record));
  Result<std::string> marked = with_mark(text);
  if (marked) text = *std::move(marked);
  else if (unmarked)
    unmarked("this run cannot be marked as yours, and will read files of its own folder only: " + marked.error().cause + "; " +
             marked.error().hint);
  NewFile made = TRY(NewFile::beside(clean.string() + ".run.toml"));
  TRY_STATUS(made.file().write(text));
  std::filesystem::create_directory(clean, error);
  if (error) return run_error("cannot create " + clean.string() + ": " + error.message());
  // Into a directory that is a mount point nothing can be moved.
  if (!made.finish_at(clean / "run.toml")) TRY_STATUS(write_atomic(clean / "run.toml", text));
  TRY_STATUS(sync_directory(clean.parent_path()));
  return write_atomic(clean / "recipe.lua", record.recipe_text);
}

void discard_run(const std::filesystem::path& directory) {
  std::error_code error;
  const auto metrics = std::filesystem::file_size(directory / "metrics.jsonl", error);
  if (!error && metrics > 0) return;
  if (std::filesystem::exists(directory / "state", error) || std::filesystem::exists(directory / "model", error)) return;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == "run.toml" || name == "recipe.lua" || name == "memory.json" || name == "metrics.jsonl" ||
                      name == "choices.json" || name == "usage.json" || name == "report.html" || name == "profile.json" ||
                      name.starts_with("events.out.tfevents.");
    if (ours) std::filesystem::remove(entry.path(), error);
  }
  std::filesystem::remove(directory, error);  // only if nothing else is in it
}

Result<RunRecord> open_run(const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::path file = directory / "run.toml";
  if (!std::filesystem::is_directory(directory, error)) return recipe_error(directory.string() + ": no such run directory");
  if (!std::filesystem::exists(file, error))
    return recipe_error(directory.string() + " is not a run: it has no run.toml",
                        "a run is made by galley train RECIPE --out " + directory.string());
  RunRecord out;
  const File opened = TRY(File::open_read(file));
  const std::filesystem::path real = TRY(opened.real_path());
  if (!is_below(real, std::filesystem::canonical(directory, error)))
    return recipe_error(file.string() + " is a link out of the run's directory, to " + real.string(),
                        "name the directory in which it lies");
  const std::string toml_text = TRY(read_text(opened, uint64_t{64} << 20));
  out.own = has_mark(toml_text);
  const toml::parse_result parsed = toml::parse(toml_text, file.string());
  if (!parsed)
    return run_error(file.string() + ":" + std::to_string(parsed.error().source().begin.line) + ": " +
                     std::string(parsed.error().description()));
  const toml::table& t = parsed.table();
  const auto version = t["format"].value_or<int64_t>(0);
  if (version != format_version)
    return run_error(file.string() + ": format " + std::to_string(version) + ", this Galley knows " + std::to_string(format_version));
  const toml::table* recipe = t["recipe"].as_table();
  const toml::table* target = t["target"].as_table();
  if (!recipe || !target) return run_error(file.string() + ": no [recipe] or no [target]", "the file is not one that Galley wrote");
  out.version = TRY(text_field(t, "galley", file));
  out.device = TRY(text_field(t, "device", file));
  out.recipe = TRY(text_field(*recipe, "path", file));
  out.recipe_text = TRY(text_field(*recipe, "text", file));
  out.working_directory = TRY(text_field(*recipe, "working_directory", file));
  out.confined = (*recipe)["confined"].value_or(false);
  out.seed = static_cast<uint64_t>(t["seed"].value_or<int64_t>(0));
  out.steps = t["steps"].value_or<int64_t>(0);
  out.head_rows = t["head_rows"].value_or<int64_t>(0);
  out.target = text_of(*target);
  if (const toml::table* sets = (*recipe)["sets"].as_table())
    for (const auto& [name, value] : *sets) out.sets[std::string(name.str())] = value.value_or<std::string>("");
  out.machine = TRY(text_field(t, "machine", file));
  const auto rows = [](const toml::table& table, const char* name, const auto& take) {
    const toml::array* array = table[name].as_array();
    for (size_t i = 0; array && i < array->size(); ++i)
      if (const toml::table* row = (*array)[i].as_table())
        take([row](const char* key) { return (*row)[key].value_or<std::string>(""); }, *row);
  };
  rows(*recipe, "modules", [&](const auto& text, const toml::table&) {
    out.modules.push_back({text("name"), text("path"), text("text")});
  });
  rows(t, "plugins", [&](const auto& text, const toml::table& row) {
    out.plugins.push_back({text("id"), text("version"), row["state_version"].value_or<int64_t>(1), text("folder"), text("hash")});
  });
  rows(t, "strategies", [&](const auto& text, const toml::table&) { out.strategies.push_back({text("name"), text("options")}); });
  rows(t, "origins", [&](const auto& text, const toml::table&) { out.origins.push_back({text("kind"), text("name"), text("hash")}); });
  if (!std::filesystem::exists(directory / "recipe.lua", error)) TRY_STATUS(write_atomic(directory / "recipe.lua", out.recipe_text));
  return out;
}

}  // namespace galley
