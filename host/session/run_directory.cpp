#include "host/session/run_directory.hpp"

#include <algorithm>
#include <sstream>

#include "host/base/below.hpp"
#include "host/base/json.hpp"
#include "host/base/new_file.hpp"
#include "host/base/toml.hpp"
#include "host/base/utf8.hpp"
#include "host/exec/folder.hpp"
#include "host/session/mark.hpp"

namespace galley {
namespace {

constexpr int64_t format_version = 2;

/// TOML is UTF-8. Recipes and names of files may be any bytes.
std::string text_of(const toml::table& given) {
  const toml::table table = with_texts(given, utf8_of_bytes);
  std::ostringstream out;
  out << toml::toml_formatter(table, toml::toml_formatter::default_flags & ~toml::format_flags::allow_literal_strings) << "\n";
  return out.str();
}

/// A text of many lines as a person reads it, where TOML can have it so: between three quotes, in which nothing is escaped.
std::string lines_text(const std::string& key, const std::string& given) {
  const std::string text = utf8_of_bytes(given);
  const bool plain = text.find("'''") == std::string::npos && !text.ends_with('\'') && std::all_of(text.begin(), text.end(), [](char c) {
                       return c == '\n' || c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
                     });
  return plain ? key + " = '''\n" + text + "'''\n" : text_of(toml::table{{key, given}});
}

/// What a person looks for first comes first: TOML's tables would be in the order of the alphabet.
Result<std::string> text_of(const RunRecord& r) {
  std::string out;
  const auto add = [&](const char* key, const auto& value) { out += text_of(toml::table{{key, value}}); };
  const auto texts = [](const std::vector<std::string>& list) {
    toml::array array;
    for (const std::string& one : list) array.push_back(one);
    return array;
  };
  add("format", format_version);
  add("galley", r.version);
  if (!r.begun.empty()) out += "begun = " + r.begun + "\n";
  if (!r.command.empty()) add("command", r.command);
  if (!r.continues.empty()) add("continues", r.continues.string());
  add("device", r.device);
  add("machine", r.machine);
  add("seed", static_cast<int64_t>(r.seed));
  add("steps", r.steps);
  add("head_rows", r.head_rows);
  if (r.lanes > 1) add("lanes", r.lanes);
  if (!r.unit.empty()) add("loss_unit", r.unit);
  if (!r.labels.empty()) add("labels", texts(r.labels));
  add("kernels", texts(r.kernels));
  out += "\n[recipe]\n";
  add("path", r.recipe.string());
  add("working_directory", r.input.directory.string());
  add("confined", r.input.confine == Confine::Yes);
  if (!r.input.given_uses.empty()) add("uses", texts(r.input.given_uses));
  if (r.input.longer.steps > 0) add("steps", r.input.longer.steps);
  if (r.input.longer.epochs > 0) add("epochs", r.input.longer.epochs);
  out += lines_text("text", r.input.text);
  if (!r.input.sets.empty()) {
    out += "\n[recipe.sets]\n";
    for (const auto& [name, value] : r.input.sets) out += text_of(toml::table{{name, value}});
  }
  for (const auto& [name, path] : r.input.required)
    out += "\n[[recipe.modules]]\n" + text_of(toml::table{{"name", name}, {"path", path}}) + lines_text("text", r.input.modules.at(path));
  for (const auto& s : r.strategies) {
    out += "\n[[strategies]]\n" + text_of(toml::table{{"name", s.name}});
    toml::table options;
    put(options, "options", TRY(parse_json(s.options, "options of " + s.name)));
    const toml::table* given = options["options"].as_table();
    if (given && !given->empty()) out += "[strategies.options]\n" + text_of(*given);
  }
  for (const auto& d : r.data) {
    out += "\n[[data]]\n" + text_of(toml::table{{"kind", d.kind}});
    for (const auto& [name, value] : d.facts) out += text_of(toml::table{{name, value}});
  }
  for (const auto& p : r.plugins)
    out += "\n[[plugins]]\n" +
           text_of(toml::table{
               {"id", p.id}, {"version", p.version}, {"state_version", p.state_version}, {"folder", p.folder}, {"hash", p.hash}});
  for (const Origin& o : r.origins) out += "\n[[origins]]\n" + text_of(toml::table{{"kind", o.kind}, {"name", o.name}, {"hash", o.hash}});
  toml::parse_result target = toml::parse(r.target);
  if (!target) return run_error("the target is no TOML: " + std::string(target.error().description()));
  return out + "\n" + text_of(toml::table{{"target", std::move(target).table()}});
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
  const std::filesystem::path directory = TRY(absolute_folder(given));
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
  const std::filesystem::path clean = TRY(absolute_folder(given));
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
  return write_atomic(clean / "recipe.lua", record.input.text);
}

void discard_run(const std::filesystem::path& directory) {
  std::error_code error;
  const auto metrics = std::filesystem::file_size(directory / "metrics.jsonl", error);
  if (!error && metrics > 0) return;
  if (std::filesystem::exists(directory / "state", error) || std::filesystem::exists(directory / "model", error)) return;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == "run.toml" || name == "recipe.lua" || name == "memory.json" || name == "metrics.jsonl" ||
                      name == "generated.jsonl" || name == "choices.json" || name == "usage.json" || name == "report.html" ||
                      name == "profile.json" || name.starts_with("events.out.tfevents.");
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
  const toml::table t = with_texts(parsed.table(), bytes_of_utf8);
  const auto version = t["format"].value_or<int64_t>(0);
  if (version != format_version)
    return run_error(file.string() + ": format " + std::to_string(version) + ", this Galley knows " + std::to_string(format_version));
  const toml::table* recipe = t["recipe"].as_table();
  const toml::table* target = t["target"].as_table();
  if (!recipe || !target) return run_error(file.string() + ": no [recipe] or no [target]", "the file is not one that Galley wrote");
  out.version = TRY(text_field(t, "galley", file));
  out.device = TRY(text_field(t, "device", file));
  out.recipe = TRY(text_field(*recipe, "path", file));
  out.input.text = TRY(text_field(*recipe, "text", file));
  out.input.directory = TRY(text_field(*recipe, "working_directory", file));
  out.input.confine = (*recipe)["confined"].value_or(false) ? Confine::Yes : Confine::No;
  out.input.longer = {(*recipe)["steps"].value_or<int64_t>(0), (*recipe)["epochs"].value_or(0.0)};
  out.continues = t["continues"].value_or<std::string>("");
  out.seed = static_cast<uint64_t>(t["seed"].value_or<int64_t>(0));
  out.steps = t["steps"].value_or<int64_t>(0);
  out.head_rows = t["head_rows"].value_or<int64_t>(0);
  out.lanes = t["lanes"].value_or<int64_t>(1);
  out.target = text_of(*target);
  if (const toml::table* sets = (*recipe)["sets"].as_table())
    for (const auto& [name, value] : *sets) out.input.sets[std::string(name.str())] = value.value_or<std::string>("");
  out.machine = TRY(text_field(t, "machine", file));
  out.command = t["command"].value_or<std::string>("");
  out.unit = t["loss_unit"].value_or<std::string>("");
  const auto texts = [](const toml::node_view<const toml::node>& list) {
    std::vector<std::string> found;
    if (const toml::array* array = list.as_array())
      for (const toml::node& one : *array) found.push_back(one.value_or<std::string>(""));
    return found;
  };
  out.labels = texts(t["labels"]);
  out.input.given_uses = texts((*recipe)["uses"]);
  const auto rows = [](const toml::table& table, const char* name, const auto& take) {
    const toml::array* array = table[name].as_array();
    for (size_t i = 0; array && i < array->size(); ++i)
      if (const toml::table* row = (*array)[i].as_table())
        take([row](const char* key) { return (*row)[key].value_or<std::string>(""); }, *row);
  };
  rows(*recipe, "modules", [&](const auto& text, const toml::table&) {
    out.input.required[text("name")] = text("path");
    out.input.modules[text("path")] = text("text");
  });
  rows(t, "plugins", [&](const auto& text, const toml::table& row) {
    out.plugins.push_back({text("id"), text("version"), row["state_version"].value_or<int64_t>(1), text("folder"), text("hash")});
  });
  rows(t, "strategies", [&](const auto& text, const toml::table& row) {
    const toml::node* options = row.get("options");
    const bool json = options && options->is_string();  // as earlier versions wrote them
    out.strategies.push_back({text("name"), json ? text("options") : options ? to_json(toml_value(*options)) : "{}"});
  });
  rows(t, "origins", [&](const auto& text, const toml::table&) { out.origins.push_back({text("kind"), text("name"), text("hash")}); });
  if (!std::filesystem::exists(directory / "recipe.lua", error)) TRY_STATUS(write_atomic(directory / "recipe.lua", out.input.text));
  return out;
}

}  // namespace galley
