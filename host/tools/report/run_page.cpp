#include "host/tools/report/run_page.hpp"

#include <algorithm>
#include <set>

#include "host/base/below.hpp"
#include "host/base/confinement.hpp"
#include "host/base/json.hpp"
#include "host/plan/timing.hpp"
#include "host/session/run.hpp"
#include "host/tools/report/plan_report.hpp"
#include "host/tools/report/run_generated.hpp"
#include "host/tools/report/run_metrics.hpp"
#include "host/tools/report/tensors.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// A plan as the memory map shows it. `classes`: as in the document of `plan --json`, in the target's order, with name and peak.
Table map_of(const Study& s) {
  Table document = plan_document(s.program, s.plan, s.target, disk_use(s.program, s.recipe), {});
  List classes;
  for (size_t i = 0; i < s.plan.classes.size(); ++i) {
    const Moment at = s.plan.classes[i].peak_at;
    Table entry = std::get<Table>(std::get<Table>(document["classes"])[s.target.memories[i].name]);
    entry["name"] = Value(s.target.memories[i].name);
    entry["peak"] = Value(int64_t{s.plan.segment_begin[static_cast<size_t>(at.segment)] + at.index});
    classes.push_back(Value(std::move(entry)));
  }
  Table out = tensor_columns(s.program, s.plan);
  out["classes"] = Value(std::move(classes));
  // What no strategy has asked for is there because the recipe names a model and data.
  out["places"] = Value(Table{{"model", Value(s.recipe.model.place.text())}, {"data", Value(s.recipe.data.place.text())}});
  return out;
}

Table sets_of(const std::map<std::string, std::string>& sets) {
  Table out;
  for (const auto& [name, value] : sets) out[name] = Value(value);
  return out;
}

List uses_of(const std::vector<std::string>& given) { return List(given.begin(), given.end()); }

Table record_json(const RunRecord& r) {
  List plugins, strategies;
  for (const auto& p : r.plugins) plugins.push_back(Value(Table{{"id", Value(p.id)}, {"version", Value(p.version)}}));
  for (const auto& s : r.strategies) strategies.push_back(Value(s.name + " " + s.options));
  return {{"galley", Value(r.version)},
          {"recipe", Value(r.recipe.string())},
          {"text", Value(r.input.text)},
          {"sets", Value(sets_of(r.input.sets))},
          {"uses", Value(uses_of(r.input.given_uses))},
          {"device", Value(r.device)},
          {"machine", Value(r.machine)},
          {"seed", Value(static_cast<int64_t>(r.seed))},
          {"steps", Value(r.steps)},
          {"unit", Value(r.unit)},
          {"plugins", Value(std::move(plugins))},
          {"strategies", Value(std::move(strategies))}};
}

/// A file of a run that may be absent or broken: nil then. One that leads out of a stranger's run is an error.
Result<Value> optional_json(const fs::path& path) {
  TRY_STATUS(Confinement::check(path));
  auto read = read_json(path, uint64_t{64} << 20, kManyJsonValues);
  return read ? std::move(read).value() : Value();
}

/// Where the plan that was made again is not the one that the run had.
std::string differs_text(const Value& memory, const Study& s) {
  const auto* classes = memory.field<Table>("classes");
  for (size_t i = 0; classes && i < s.plan.classes.size(); ++i) {
    const auto found = classes->find(s.target.memories[i].name);
    const auto* planned = found == classes->end() ? nullptr : found->second.field<int64_t>("planned");
    if (planned && *planned != s.plan.classes[i].planned)
      return "made again by this Galley, the plan has " + std::to_string(s.plan.classes[i].planned) + " bytes of '" +
             s.target.memories[i].name + "'; the run had " + std::to_string(*planned) + ".";
  }
  return {};
}

/// The page's data as it grows.
class ReportData {
 public:
  /// `runs`: how many will be added.
  ReportData(const StudyOptions& options, size_t runs) : options_(options), most_generated_(std::max<size_t>(kMostGenerated / runs, 2)) {
    options_.runs = false;
  }

  enum class Map : uint8_t { Yes, No };
  Status add_run(const fs::path& directory, const std::string& name, const std::string& arm, Map wanted) {
    const RunRecord record = TRY(open_run(directory));
    StudyOptions options = options_;
    confine_run(record, directory, &options);
    if (options.within) options_.warn = {};  // once for all runs of a page
    RunMetrics metrics = TRY(read_run_metrics(directory, kMostPoints));
    Value memory = TRY(optional_json(directory / "memory.json")), usage = TRY(optional_json(directory / "usage.json")),
          profile = TRY(optional_json(directory / "profile.json"));
    if (!profile.field<List>("ops") || !profile.field<List>("strategies")) profile = Value();
    if (!memory.field<Table>("classes")) memory = Value();
    Value generated = TRY(read_generated(directory, most_generated_));
    Table run = {{"name", Value(name)},
                 {"directory", Value(directory.string())},
                 {"record", Value(record_json(record))},
                 {"metrics", Value(std::move(metrics.steps))},
                 {"validation", Value(std::move(metrics.validation))},
                 {"evaluation", Value(std::move(metrics.evaluation))},
                 {"generated", std::move(generated)},
                 {"memory", memory},
                 {"usage", std::move(usage)},
                 {"profile", std::move(profile)}};
    if (!arm.empty()) run["arm"] = Value(arm);
    if (wanted == Map::Yes) add_map(directory, options, arm.empty() ? name : arm, memory, run);
    runs_.push_back(Value(std::move(run)));
    return ok();
  }

  Value finish(const char* kind, std::string title, std::string subtitle, Value comparison = {}) {
    List maps;
    for (size_t i = 0; i < maps_.size(); ++i) {
      maps_[i]["title"] = Value(titles_[i]);
      maps.push_back(Value(std::move(maps_[i])));
    }
    return Value(Table{{"kind", Value(std::string(kind))},
                       {"title", Value(std::move(title))},
                       {"subtitle", Value(std::move(subtitle))},
                       {"galley", Value(std::string(GALLEY_VERSION))},
                       {"runs", Value(std::move(runs_))},
                       {"comparison", std::move(comparison)},
                       {"maps", Value(std::move(maps))}});
  }

 private:
  void add_map(const fs::path& directory, const StudyOptions& options, const std::string& title, const Value& memory, Table& run) {
    const Result<Run> again = study_run(directory, options);
    if (!again) {
      run["map_error"] = Value(again.error().cause + (again.error().hint.empty() ? "" : " (" + again.error().hint + ")"));
      return;
    }
    if (const std::string note = differs_text(memory, *again->study); !note.empty()) run["map_note"] = Value(title + ": " + note);
    Table map = map_of(*again->study);
    // Runs that differ in a rate or a seed have one plan: it is shown once, under all their names.
    const std::string text = to_json(Value(map));
    const auto same = std::find(texts_.begin(), texts_.end(), text);
    if (same == texts_.end()) {
      texts_.push_back(text);
      titles_.push_back(title);
      maps_.push_back(std::move(map));
    } else {
      titles_[static_cast<size_t>(same - texts_.begin())] += ", " + title;
    }
  }

  StudyOptions options_;
  size_t most_generated_;  ///< lines of a run
  List runs_;
  std::vector<Table> maps_;
  std::vector<std::string> texts_, titles_;  ///< of them
};

/// The path of a run below a comparison's directory; a file by a stranger must not lead out of it, nor a link.
Result<fs::path> run_below(const fs::path& directory, const std::string& relative) {
  std::error_code error;
  const fs::path folder = fs::canonical(directory, error), real = fs::weakly_canonical(directory / relative, error);
  if (error || !is_below(real, folder))
    return run_error((directory / "compare.json").string() + ": the run '" + relative + "' does not lie below the comparison",
                     "the file is not one that Galley wrote");
  return directory / relative;
}

Result<Value> comparison_page(const fs::path& directory, const StudyOptions& options) {
  const fs::path file = directory / "compare.json";
  Value comparison;
  {
    const Confinement within({directory}, "the comparison's folder", "name the folder in which it lies");
    comparison = TRY(read_json(file, uint64_t{64} << 20, kManyJsonValues));
  }
  const auto* arms = comparison.field<List>("arms");
  if (!arms || !comparison.field<List>("seeds") || !comparison.field<List>("differ"))
    return run_error(file.string() + ": no 'arms', 'seeds' or 'differ'", "the file is not one that Galley wrote");
  size_t count = 0;
  for (const Value& arm : *arms)
    if (const auto* runs = arm.field<List>("runs")) count += runs->size();
  ReportData data(options, std::max<size_t>(count, 1));
  std::string names;
  for (const Value& arm : *arms) {
    const std::string name = arm.text_field("name");
    names += (names.empty() ? "" : ", ") + name;
    const auto* runs = arm.field<List>("runs");
    auto map = ReportData::Map::Yes;  // plans of other seeds are the same
    for (const Value& run : runs ? *runs : List()) {
      const auto* seed = run.field<int64_t>("seed");
      TRY_STATUS(data.add_run(TRY(run_below(directory, run.text_field("directory"))),
                              name + ", seed " + (seed ? std::to_string(*seed) : "?"), name, map));
      map = ReportData::Map::No;
    }
  }
  std::error_code error;
  return data.finish("comparison", "Comparison of " + names, fs::absolute(directory, error).lexically_normal().string(),
                     std::move(comparison));
}

std::string machine_text(const Study& s) { return s.model.model_type + ", for " + s.target.device + " (" + s.target.isa + ")"; }

/// A plan in the place of a run: what it comes from.
Value planned_json(const Study& study, const fs::path& recipe, const std::string& name) {
  List strategies, plugins;
  for (const auto& s : study.loaded) strategies.push_back(Value(s->name() + " " + to_json(Value(s->options().values()))));
  for (const auto& p : study.plugins->all())
    if (p->library) plugins.push_back(Value(Table{{"id", Value(p->manifest.id)}, {"version", Value(p->manifest.version)}}));
  Table record = {{"galley", Value(std::string(GALLEY_VERSION))},
                  {"recipe", Value(recipe.string())},
                  {"text", Value(study.recipe.text)},
                  {"sets", Value(sets_of(study.recipe.sets))},
                  {"uses", Value(uses_of(study.recipe.given_uses))},
                  {"device", Value(study.target.device)},
                  {"machine", Value(study.target.isa)},
                  {"seed", Value(static_cast<int64_t>(study.recipe.seed))},
                  {"steps", Value(study.recipe.steps)},
                  {"plugins", Value(std::move(plugins))},
                  {"strategies", Value(std::move(strategies))}};
  return Value(Table{{"name", Value(name)}, {"record", Value(std::move(record))}});
}

Value page_of_plans(std::string title, std::string subtitle, List runs, List maps, Value variants) {
  return Value(Table{{"kind", Value(std::string("plan"))},
                     {"title", Value(std::move(title))},
                     {"subtitle", Value(std::move(subtitle))},
                     {"galley", Value(std::string(GALLEY_VERSION))},
                     {"runs", Value(std::move(runs))},
                     {"comparison", Value()},
                     {"variants", std::move(variants)},
                     {"maps", Value(std::move(maps))}});
}

}  // namespace

Value plan_page(const Study& study, const fs::path& recipe, Value change) {
  const std::string name = recipe.filename().string();
  Table map = map_of(study);
  map["title"] = Value(name);
  if (!change.is_nil()) map["change"] = std::move(change);
  return page_of_plans("Plan of " + name, machine_text(study), {planned_json(study, recipe, name)}, {Value(std::move(map))}, {});
}

Value variants_page(const std::vector<PlannedVariant>& variants, const fs::path& recipe) {
  List runs, maps, rows;
  std::string subtitle;
  for (const PlannedVariant& v : variants) {
    Table row = {{"name", Value(v.name)}};
    if (!v.study) {
      row["refusal"] = Value(v.refusal);
      rows.push_back(Value(std::move(row)));
      continue;
    }
    const Study& s = *v.study;
    if (subtitle.empty()) subtitle = machine_text(s);
    Table owners, planned;
    for (size_t i = 0; i < s.plan.classes.size(); ++i) {
      if (s.plan.classes[i].planned) planned[s.target.memories[i].name] = Value(s.plan.classes[i].planned);
      for (size_t o = 0; o < owner_names.size(); ++o) {
        Value& sum = owners.try_emplace(owner_names[o], Value(int64_t{0})).first->second;
        sum = Value(*sum.as<int64_t>() + s.plan.classes[i].owners[o]);
      }
    }
    const double seconds = step_seconds(s.program, s.target);
    row["bytes"] = Value(s.peak_memory());
    row["planned"] = Value(std::move(planned));
    row["owners"] = Value(std::move(owners));
    row["seconds"] = seconds > 0 ? Value(seconds) : Value();
    row["positions"] = Value(s.program.micro_batches * s.program.rows * s.program.length);
    row["flops_per_position"] = Value(s.program.flops_per_token);
    rows.push_back(Value(std::move(row)));
    runs.push_back(planned_json(s, recipe, v.name));
    Table map = map_of(s);
    map["title"] = Value(v.name);
    maps.push_back(Value(std::move(map)));
  }
  return page_of_plans("Plans of " + recipe.filename().string(), subtitle, std::move(runs), std::move(maps), Value(std::move(rows)));
}

Result<Value> report_page(const std::vector<fs::path>& directories, const StudyOptions& options) {
  std::error_code error;
  std::set<std::string> endings;
  for (const fs::path& directory : directories) {
    if (!fs::is_directory(directory, error)) return recipe_error(directory.string() + ": there is no such directory");
    endings.insert(directory.lexically_normal().filename().string());
    if (fs::exists(directory / "run.toml", error)) continue;
    if (!fs::exists(directory / "compare.json", error))
      return recipe_error(directory.string() + " is neither a run nor a comparison: it has no run.toml and no compare.json",
                          "galley train RECIPE --out DIR makes a run; galley compare RECIPE --out DIR a comparison, when it has ended");
    if (directories.size() > 1)
      return recipe_error(directory.string() + " is a comparison, which has a page of its own", "galley report " + directory.string());
    return comparison_page(directory, options);
  }
  const bool short_names =
      endings.size() == directories.size() && !endings.contains("") && !endings.contains(".") && !endings.contains("..");
  ReportData data(options, directories.size());
  std::string names;
  for (const fs::path& directory : directories) {
    const std::string name = short_names ? directory.lexically_normal().filename().string() : directory.string();
    names += (names.empty() ? "" : ", ") + name;
    TRY_STATUS(data.add_run(directory, name, "", ReportData::Map::Yes));
  }
  if (directories.size() == 1) return data.finish("runs", "Run " + names, fs::absolute(directories[0], error).lexically_normal().string());
  return data.finish("runs", std::to_string(directories.size()) + " runs", names);
}

}  // namespace galley
