#include "host/recipe/recipe.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/schedule.hpp"
#include "host/lua/sandbox.hpp"
#include "host/recipe/arguments.hpp"
#include "host/recipe/declared.hpp"
#include "host/recipe/evaluation.hpp"
#include "host/recipe/fields.hpp"
#include "host/recipe/foreign.hpp"
#include "host/recipe/language.hpp"
#include "host/recipe/paths.hpp"
#include "host/recipe/scan.hpp"
#include "host/recipe/script.hpp"
#include "host/recipe/variants.hpp"

namespace galley {
namespace {

/// A schedule is a table with a number for each step: this many numbers in all schedules together.
constexpr int64_t kMostNumbers = 20'000'000;
/// Before the number of steps is known, schedules are made for this many: what is wrong with them is found before the data is prepared.
constexpr int64_t kStandIn = 1000;
constexpr size_t kMostUses = 256;
/// Of all paths together: resolving one takes a system call for each part of it.
constexpr size_t kMostPathBytes = 512u << 10;

/// Judges what the language took down. Lives as long as the sandbox is open.
class Reader {
 public:
  /// `steps`: how many the recipe's epochs are; 0: not known.
  Reader(Language& language, PathRules& paths, const Sandbox& sandbox, const Recipe& recipe, int64_t steps)
      : language_(language), paths_(paths), library_(recipe.library), steps_(steps) {
    maps_.emplace(recipe.name, SourceMap(recipe.text));
    for (const LuaSource& source : sandbox.sources()) maps_.emplace(source.name, SourceMap(source.text));
  }

  Status read(const Entry& entry, Recipe* recipe);
  Result<CompareSpec> compare_spec(const Entry& entry) { return galley::compare_spec(entry, fields_of(entry, "the comparison")); }

 private:
  const EntryLines& lines_of(const Place& place, const std::string& callee);
  Fields fields_of(const Entry& entry, const std::string& owner);
  Status only(const Fields& fields, const Table& table, const Declared& declared) const;
  Status plain(const Fields& fields, const Table& table) const;
  Status plain(const Value& value, const Place& place, const std::string& name) const;
  Result<const Entry*> entry_of(const Fields& fields, const char* name, Entry::Kind kind, const std::string& example) const;
  Status read_model(const Entry& entry, ModelSpec* model);
  Status read_data(const Entry& entry, DataSpec* data);
  Status read_mix(const Entry& entry, DataSpec* data);
  Status read_numbers(const Fields& fields, Recipe* recipe);
  Status read_uses(const Entry& entry, Recipe* recipe);
  Result<Use> read_use(const Entry& entry);
  Result<Schedule> schedule(const Entry& entry, const std::string& option, const Place& place);
  Result<Curve> read_curve(const Entry& entry, const std::string& option);
  Status finish_options(Value* value, const Use& use, const std::string& option, const std::string& path);
  Status resolve(Value* value, const Place& place);

  Language& language_;
  PathRules& paths_;
  const std::filesystem::path library_;
  int64_t steps_;  // of the run; 0: not known
  std::map<std::string, SourceMap> maps_;
  std::map<std::pair<std::string, std::string>, EntryLines> lines_;  // by place and callee
  int64_t numbers_ = 0;                                              // in the tables of all schedules
  size_t path_bytes_ = 0;
  std::vector<std::string> warnings_;
};

const EntryLines& Reader::lines_of(const Place& place, const std::string& callee) {
  const auto [lines, added] = lines_.try_emplace({place.text(), callee});
  const auto map = maps_.find(place.file);
  if (added && map != maps_.end()) lines->second = map->second.entries(place.line, callee);
  return lines->second;
}

Fields Reader::fields_of(const Entry& entry, const std::string& owner) {
  return Fields(entry.options, entry.place, lines_of(entry.place, entry.name), owner);
}

/// No others than declared ones; of other trainers' names it is said how Galley writes what they mean.
Status Reader::only(const Fields& fields, const Table& table, const Declared& declared) const {
  for (const auto& [name, value] : table) {
    const bool known = std::any_of(declared.options.begin(), declared.options.end(), [&, &key = name](const OptionSpec& spec) {
      return spec.name == key || std::find(spec.aliases.begin(), spec.aliases.end(), key) != spec.aliases.end();
    });
    if (const std::string written = known ? "" : foreign_name(library_, name).written; !written.empty())
      return fields.error(name, "unknown option '" + name + "' of " + (declared.name == "recipe" ? "the recipe" : declared.name), written);
  }
  return fields.only(declared.options);
}

/// Refuses functions, schedules, strategies and the like.
Status Reader::plain(const Value& value, const Place& place, const std::string& name) const {
  if (find_entry(value)) {
    return recipe_error(place.text() + ": '" + name + "' is " + shown(value) + " and no plain data",
                        "only options of strategies can follow the step");
  }
  if (const auto* list = value.as<List>()) {
    for (size_t i = 0; i < list->size(); ++i) TRY_STATUS(plain((*list)[i], place, name + "[" + std::to_string(i + 1) + "]"));
  }
  if (const auto* table = value.as<Table>()) {
    for (const auto& [key, element] : *table) TRY_STATUS(plain(element, place, name + "." + key));
  }
  return ok();
}

Status Reader::plain(const Fields& fields, const Table& table) const {
  for (const auto& [name, value] : table) TRY_STATUS(plain(value, fields.place_of(name), name));
  return ok();
}

Result<const Entry*> Reader::entry_of(const Fields& fields, const char* name, Entry::Kind kind, const std::string& example) const {
  const Value* value = fields.find(name);
  if (!value) return fields.missing(name, "write " + example);
  const Entry* entry = find_entry(*value);
  if (!entry || entry->kind != kind) return fields.wrong(name, example);
  return entry;
}

/// Paths, in place: a text or a list of texts. What is neither is left to whoever checks the option's type.
Status Reader::resolve(Value* value, const Place& place) {
  if (const auto* text = value->as<std::string>()) {
    path_bytes_ += text->size();
    if (path_bytes_ > kMostPathBytes)
      return recipe_error(place.text() + ": the recipe names too many files", "name their folder, or a pattern");
    Result<std::filesystem::path> path = paths_.resolve(*text);
    if (!path) return recipe_error(place.text() + ": " + path.error().cause, path.error().hint);
    *value = Value(path->string());
  } else if (value->as<List>()) {
    for (Value& element : std::get<List>(*value)) {
      if (element.as<std::string>()) TRY_STATUS(resolve(&element, place));
    }
  }
  return ok();
}

Status Reader::read_model(const Entry& entry, ModelSpec* model) {
  const Fields fields = fields_of(entry, "model");
  const Declared& declared = declared_model();
  TRY_STATUS(only(fields, entry.options, declared));
  TRY_STATUS(plain(fields, entry.options));
  model->place = entry.place;
  const auto path = TRY(fields.text("path"));
  const auto init = TRY(fields.choice(declared["init"]));
  model->family = TRY(fields.text("family")).value_or("");
  model->task = TRY(fields.text("task")).value_or("");
  if (const Value* labels = fields.find("labels"); labels && labels->as<List>()) {
    model->label_names = TRY(fields.texts("labels")).value_or(std::vector<std::string>());
    model->labels = static_cast<int64_t>(model->label_names.size());
    if (std::set<std::string>(model->label_names.begin(), model->label_names.end()).size() != model->label_names.size())
      return fields.error("labels", "'labels' of model has a name twice");
    if (model->labels == 0) return fields.wrong("labels", declared["labels"].expects());
  } else {
    model->labels = TRY(fields.integer("labels", 1, INT32_MAX)).value_or(0);
  }

  for (const bool special : {false, true}) {
    const char* name = special ? "add_special_tokens" : "add_tokens";
    for (std::string& token : TRY(fields.texts(name)).value_or(std::vector<std::string>())) {
      if (token.empty()) return fields.wrong(name, declared[name].expects());
      model->new_tokens.push_back({std::move(token), special});
    }
  }

  const Value* config = fields.find("config");
  if (path) {
    if (config)
      return fields.error("config", "a model has either a path, with the configuration that lies there, or a family and a config");
    Value resolved(*path);
    TRY_STATUS(resolve(&resolved, fields.place_of("path")));
    model->path = *resolved.as<std::string>();
    model->random = init == 1;
    return ok();
  }
  if (!config && model->family.empty())
    return fields.missing("path", "write model { path = arg(\"model\") }, or model { family = \"gpt2\", config = { … } }");
  if (model->family.empty()) return fields.missing("family", "a config needs the name of its family, such as family = \"gpt2\"");
  if (!config) return fields.missing("config", "a family needs the numbers of its config.json: config = { … }");
  if (fields.find("init") && init == 0)
    return fields.error("init", "there is no file to take weights from: the model is a family and a config");
  const auto* list = config->as<List>();
  if (config->as<Table>()) model->config = *config->as<Table>();
  else if (!list || !list->empty()) return fields.wrong("config", "a table such as { n_layer = 2 }");
  model->random = true;
  return ok();
}

Status Reader::read_data(const Entry& entry, DataSpec* data) {
  const Fields fields = fields_of(entry, "data." + entry.name);
  data->kind = entry.name;
  data->place = entry.place;
  data->options = entry.options;
  if (const auto it = data->options.find("template"); it != data->options.end()) {
    const Entry* function = find_entry(it->second);
    if (function && function->kind == Entry::Kind::Function) {
      data->chat_template = function->number;
      data->options.erase(it);
    }
  }
  TRY_STATUS(plain(fields, data->options));
  for (auto& [name, value] : data->options) {
    const auto* text = value.as<std::string>();
    const bool built_in = text && (*text == "model" || *text == "bytes");
    const bool files = name == "files" || name == "validation";
    const bool file = name == "path" || (name == "tokenizer" && !built_in) || (name == "template" && text && text->ends_with(".jinja"));
    if (files || file) TRY_STATUS(resolve(&value, fields.place_of(name)));
  }
  return read_mix(entry, data);
}

Status Reader::read_mix(const Entry& entry, DataSpec* data) {
  for (const auto& [position, value] : entry.items) {
    const Entry* part = find_entry(value);
    if (!part || part->kind != Entry::Kind::Data || part->name == "mix")
      return recipe_error(entry.place.text() + ": entry " + std::to_string(position) + " of data.mix must be data, not " +
                              (part && part->name == "mix" ? "another data.mix" : shown(value)),
                          "write data.mix { data.text { … }, data.chat { … }, weights = { 1, 2 } }");
    TRY_STATUS(read_data(*part, &data->parts.emplace_back()));
  }
  return ok();
}

/// Numbers as they are declared: nullopt where there is neither a value nor a default.
Result<std::optional<int64_t>> whole(const OptionReader& fields, const OptionSpec& spec) {
  const Value value = TRY(fields.take(spec));
  return value.is_nil() ? std::optional<int64_t>() : std::optional(*value.as<int64_t>());
}
Result<std::optional<double>> number(const OptionReader& fields, const OptionSpec& spec) {
  const Value value = TRY(fields.take(spec));
  double out = 0;
  return value.number(&out) ? std::optional(out) : std::optional<double>();
}
Result<bool> flag(const OptionReader& fields, const OptionSpec& spec) { return *TRY(fields.take(spec)).as<bool>(); }

/// A number of steps, or a share of the run below 1.
Result<Span> span(const OptionReader& fields, const OptionSpec& spec) {
  const double value = TRY(number(fields, spec)).value_or(0);
  if (value >= 1 && std::floor(value) != value)
    return fields.wrong(spec.name, spec.expects(),
                        "write " + spec.name + " = " + std::to_string(std::llround(value)) + " for steps, or " + spec.name +
                            " = 0.03 for three hundredths of the run");
  return Span{value};
}

/// The axis of processes that compute together.
Status read_ranks(const OptionReader& fields, const std::string& expects, Recipe* recipe) {
  const Value* const ranks = fields.find("ranks");
  if (!ranks || ranks->is_nil()) return ok();
  constexpr int64_t kMost = 1024;
  const Table* const axes = ranks->as<Table>();
  if (!axes || axes->size() != 1) return fields.wrong("ranks", expects);
  const auto& [name, value] = *axes->begin();
  const int64_t* const number = value.as<int64_t>();
  if (!number || *number < 1 || *number > kMost) return fields.wrong("ranks", expects);
  if (name == "data")
    return fields.error("ranks", "the axis \"data\" is that of groups which compute other micro-batches",
                        "name it otherwise: ranks = { tensor = 2 }");
  recipe->axis = name;
  recipe->together = *number;
  return ok();
}

Status Reader::read_numbers(const Fields& fields, Recipe* recipe) {
  const Declared& declared = declared_recipe();
  auto steps = TRY(whole(fields, declared["steps"]));
  recipe->epochs = TRY(number(fields, declared["epochs"])).value_or(0);
  recipe->epochs_place = fields.place_of("epochs");
  if (steps && recipe->epochs > 0)
    return fields.error("epochs", "the recipe says both 'steps' and 'epochs'", "either says how long the run is: leave one of them out");
  if (!steps && recipe->epochs == 0)
    return fields.missing("steps", "say how many updates the run makes: steps = 1000, or how often it goes through the data: epochs = 3");
  if (recipe->longer.given()) {
    steps = recipe->longer.steps > 0 ? std::optional(recipe->longer.steps) : std::nullopt;
    recipe->epochs = recipe->longer.epochs;
  }
  if (steps) steps_ = *steps;
  recipe->steps = steps_;
  recipe->batch = TRY(whole(fields, declared["batch"]));
  recipe->length = TRY(whole(fields, declared["length"]));
  recipe->target_length = TRY(whole(fields, declared["target_length"]));
  recipe->seed = static_cast<uint64_t>(*TRY(whole(fields, declared["seed"])));
  if (const Value* kernels = fields.find("kernels")) {
    const List* list = kernels->as<List>();
    for (size_t i = 0; list && i < list->size(); ++i)
      if (const auto* id = (*list)[i].as<std::string>()) recipe->kernels.push_back(*id);
    if (!list || recipe->kernels.size() != list->size()) return fields.wrong("kernels", declared["kernels"].expects());
  }
  recipe->deterministic = TRY(flag(fields, declared["deterministic"]));
  recipe->tune = TRY(flag(fields, declared["tune"]));
  recipe->head_rows = *TRY(whole(fields, declared["head_rows"]));
  recipe->lanes = *TRY(whole(fields, declared["lanes"]));
  TRY_STATUS(read_ranks(fields, declared["ranks"].expects(), recipe));

  if (const auto validate = TRY(fields.table("validate", declared["validate"].expects()))) {
    const Declared& entries = declared_validate();
    TRY_STATUS(validate->only(entries.options));
    Validation& out = recipe->validate;
    out.every = *TRY(whole(*validate, entries["every"]));
    out.start = TRY(flag(*validate, entries["start"]));
    out.patience = *TRY(whole(*validate, entries["patience"]));
    out.min_delta = *TRY(number(*validate, entries["min_delta"]));
    if (out.patience > 0 && out.every == 0)
      return validate->error("patience", "'validate.patience' counts validations, and there are none",
                             "say how often: validate = { every = 50, patience = 3 }");
    if (out.min_delta > 0 && out.patience == 0)
      return validate->error("min_delta", "'validate.min_delta' is for 'validate.patience', which is not there",
                             "say after how many validations the run ends: validate = { every = 50, patience = 3 }");
  }
  if (const auto evaluate = TRY(fields.table("evaluate", declared["evaluate"].expects())))
    recipe->evaluate = TRY(read_evaluation(*evaluate, [&](Value* file, const Place& place) { return resolve(file, place); }));
  if (const auto save = TRY(fields.table("save", declared["save"].expects()))) {
    const Declared& entries = declared_save();
    TRY_STATUS(save->only(entries.options));
    recipe->save.every = *TRY(whole(*save, entries["every"]));
    recipe->save.keep = *TRY(whole(*save, entries["keep"]));
    recipe->save.final = TRY(flag(*save, entries["final"]));
    recipe->save.best = TRY(flag(*save, entries["best"]));
    if (recipe->save.best && recipe->validate.every == 0)
      return save->error("best", "'save.best' is the state of the lowest validation loss, and the recipe does not validate",
                         "say how often: validate = { every = 50 }");
    if (const auto dtype = TRY(save->choice(entries["dtype"]))) recipe->save.dtype = entries["dtype"].choices[*dtype];
  }
  return ok();
}

Result<Curve> Reader::read_curve(const Entry& entry, const std::string& option) {
  const Declared& declared = declared_schedule(entry.name);
  const Fields fields = fields_of(entry, entry.name);
  TRY_STATUS(fields.only(declared.options));
  const auto has = [&](const char* name) {
    return std::any_of(declared.options.begin(), declared.options.end(), [&](const OptionSpec& spec) { return spec.name == name; });
  };
  Curve curve;
  while (name_of(curve.shape) != entry.name) curve.shape = static_cast<Curve::Shape>(static_cast<int>(curve.shape) + 1);
  const auto peak = TRY(fields.number("peak"));
  if (!peak) return fields.missing("peak", "write " + declared.written);
  curve.peak = *peak;
  curve.warmup = TRY(span(fields, declared["warmup"]));
  if (has("decay")) curve.decay = TRY(span(fields, declared["decay"]));
  if (has("decay_type")) curve.decay_type = static_cast<Curve::Decay>(*TRY(fields.choice(declared["decay_type"])));
  if (has("timescale")) curve.timescale = TRY(whole(fields, declared["timescale"])).value_or(0);
  if (!has("floor")) return curve;
  const auto least = TRY(fields.number("min"));
  if (fields.find("floor") && least) return fields.error("min", "'floor' and 'min' are two names of the same");
  curve.floor = least ? *least : *TRY(number(fields, declared["floor"]));
  if (curve.floor > curve.peak) {
    const char* name = fields.find("floor") ? "floor" : least ? "min" : "peak";
    return fields.error(name,
                        "the " + entry.name + " schedule of '" + option + "' falls from its peak of " + to_json(Value(curve.peak)) +
                            " to a floor of " + to_json(Value(curve.floor)) + ", which is above it",
                        "what rises is a function: " + option + " = function(step, steps) return … end");
  }
  return curve;
}

Result<Schedule> Reader::schedule(const Entry& entry, const std::string& option, const Place& place) {
  if (entry.kind == Entry::Kind::Schedule && entry.name == "constant") {
    const auto value = TRY(fields_of(entry, "constant").number("value"));
    if (!value) return recipe_error(entry.place.text() + ": constant takes a number", "write constant(1e-3)");
    return constant(*value);
  }
  const int64_t steps = steps_ > 0 ? steps_ : kStandIn;
  numbers_ += steps;
  if (numbers_ > kMostNumbers)
    return recipe_error(entry.place.text() + ": the schedules of the recipe have more than " + std::to_string(kMostNumbers) +
                        " values together");
  if (entry.kind == Entry::Kind::Function) return language_.tabulate(entry, steps, option, place);
  const Curve curve = TRY(read_curve(entry, option));
  // A run that is cut short to try something out must not need another recipe.
  if (const int64_t warmup = curve.warmup.of(steps); warmup >= steps && steps_ > 0) {
    warnings_.push_back(fields_of(entry, entry.name).place_of("warmup").text() + ": the " + entry.name + " schedule of '" + option +
                        "' never reaches its peak of " + to_json(Value(curve.peak)) + ": the warm-up takes " + std::to_string(warmup) +
                        " steps, the run has " + std::to_string(steps));
  } else if (const int64_t decay = curve.decay.of(steps); warmup + decay > steps && steps_ > 0) {
    warnings_.push_back(fields_of(entry, entry.name).place_of("decay").text() + ": the " + entry.name + " schedule of '" + option +
                        "' decays over " + std::to_string(steps - warmup) + " steps instead of " + std::to_string(decay) +
                        ": the warm-up takes " + std::to_string(warmup) + " of the run's " + std::to_string(steps));
  }
  return tabulate(curve, steps);
}

/// Turns entries into schedules and resolves paths, in place. `option` is the option of the strategy that all this belongs to, `path` how
/// messages call the value.
Status Reader::finish_options(Value* value, const Use& use, const std::string& option, const std::string& path) {
  if (const Entry* entry = find_entry(*value)) {
    if (entry->kind != Entry::Kind::Schedule && entry->kind != Entry::Kind::Function) {
      return recipe_error(use.place_of(option).text() + ": '" + path + "' of " + use.name + " is " + entry->kind_name() +
                          " and no value of an option");
    }
    *value = Value(TRY(schedule(*entry, path, use.place_of(option))));
  } else if (value->as<List>()) {
    List& list = std::get<List>(*value);
    for (size_t i = 0; i < list.size(); ++i) TRY_STATUS(finish_options(&list[i], use, option, path + "[" + std::to_string(i + 1) + "]"));
  } else if (value->as<Table>()) {
    for (auto& [key, element] : std::get<Table>(*value)) {
      TRY_STATUS(finish_options(&element, use, option, path.empty() ? key : path + "." + key));
      if (key == "path" || key.ends_with("_path")) TRY_STATUS(resolve(&element, use.place_of(option)));
    }
  }
  return ok();
}

Result<Use> Reader::read_use(const Entry& entry) {
  Use use{entry.name, entry.options, entry.place, {}};
  const EntryLines& lines = lines_of(entry.place, "use");
  for (const auto& [name, value] : use.options) {
    const auto line = lines.find(name);
    if (line != lines.end() && line->second != entry.place.line) use.lines.insert(*line);
  }
  for (auto& [name, value] : use.options) {
    TRY_STATUS(finish_options(&value, use, name, name));
    if (name == "path" || name.ends_with("_path")) TRY_STATUS(resolve(&value, use.place_of(name)));
  }
  return use;
}

Status Reader::read_uses(const Entry& entry, Recipe* recipe) {
  if (entry.items.size() + language_.added().size() > kMostUses)
    return recipe_error(entry.place.text() + ": the recipe has more than " + std::to_string(kMostUses) + " strategies");
  for (const auto& [position, value] : entry.items) {
    // `condition and use "name" { … }` is false, or leaves a hole, when the condition does not hold.
    if (value.is_nil() || (value.as<bool>() && !*value.as<bool>())) continue;
    const Entry* use = find_entry(value);
    if (!use || use->kind != Entry::Kind::Use) {
      const auto* text = value.as<std::string>();
      return recipe_error(
          entry.place.text() + ": entry " + std::to_string(position) + " of the recipe must be a strategy, not " + shown(value),
          "write use \"" + (text && text->size() <= 60 ? *text : std::string("name")) + "\" { … }");
    }
    recipe->uses.push_back(TRY(read_use(*use)));
  }
  for (const Entry* use : language_.added()) recipe->uses.push_back(TRY(read_use(*use)));
  return ok();
}

/// A seed that --set gives.
Status set_seed(const std::map<std::string, std::string>& sets, const char* name, uint64_t* out) {
  const auto given = sets.find(name);
  if (given == sets.end()) return ok();
  const OptionSpec& spec = declared_recipe()["seed"];
  const auto value = parse_json(given->second, std::string("--set ") + name);
  if (!value || !value->as<int64_t>() || !spec.range.contains(static_cast<double>(*value->as<int64_t>())))
    return recipe_error(std::string("--set ") + name + "=" + given->second + ": " + spec.expects());
  *out = static_cast<uint64_t>(*value->as<int64_t>());
  return ok();
}

Status Reader::read(const Entry& entry, Recipe* recipe) {
  if (entry.kind == Entry::Kind::Compare) {
    const auto wanted = recipe->sets.find("variant");
    const CompareSpec spec = TRY(compare_spec(entry));
    Entry variant = TRY(variant_of(entry, spec, wanted == recipe->sets.end() ? std::string() : wanted->second));
    TRY_STATUS(set_budget(variant, spec, recipe->sets));
    TRY_STATUS(read(variant, recipe));
    recipe->validate.end = spec.budget && recipe->validate.every > 0 && !recipe->sets.contains("trial");
    // A seed that a variant says is added to the comparison's: its runs draw other numbers than the others'.
    const auto own = variant.options.find("seed");
    if (own != variant.options.end() && recipe->sets.contains("seed")) recipe->seed += static_cast<uint64_t>(*own->second.as<int64_t>());
    // All seeds and variants are held against the same documents.
    if (recipe->sets.contains("split")) return ok();
    const auto common = entry.options.find("seed");
    const int64_t* said = common == entry.options.end() ? nullptr : common->second.as<int64_t>();
    recipe->split = spec.resplit ? recipe->seed : said ? static_cast<uint64_t>(*said) : Recipe().split;
    return ok();
  }
  const Fields fields = fields_of(entry, "the recipe");
  TRY_STATUS(only(fields, entry.options, declared_recipe()));
  TRY_STATUS(read_model(*TRY(entry_of(fields, "model", Entry::Kind::Model, "model { path = … }")), &recipe->model));
  TRY_STATUS(read_data(*TRY(entry_of(fields, "data", Entry::Kind::Data, "data.text { files = { … } }")), &recipe->data));
  TRY_STATUS(read_numbers(fields, recipe));
  TRY_STATUS(read_uses(entry, recipe));
  TRY_STATUS(set_seed(recipe->sets, "seed", &recipe->seed));
  recipe->split = recipe->seed;
  TRY_STATUS(set_seed(recipe->sets, "split", &recipe->split));
  recipe->warnings = std::move(warnings_);
  return ok();
}

Result<std::string> recipe_text(const std::filesystem::path& path, const RecipeOptions& options, size_t limit) {
  if (!options.text.empty()) return options.text;
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status))
    return recipe_error(path.string() + ": there is no such file", "the first argument is the path of a recipe");
  if (!std::filesystem::is_regular_file(status)) return recipe_error(path.string() + ": this is not a file");
  Result<std::string> text = read_text(path, limit);
  if (!text) return recipe_error(text.error().cause, text.error().hint);
  return text;
}

}  // namespace

std::string RecipeInput::with_arguments() const {
  std::string out = text;
  for (const auto& [name, value] : sets) out += "\n" + name + "=" + value;
  for (const std::string& use : given_uses) out += "\n--use " + use;
  return out;
}

namespace {

/// A recipe whose Lua has run, and the rules for its paths.
struct Opened {
  Recipe recipe;
  std::unique_ptr<RecipeScript> script;
  std::filesystem::path here;
};

/// Returns the current directory; "" where it cannot be found and nothing of the recipe is relative to it.
Result<std::filesystem::path> current_directory(const Recipe& recipe) {
  std::error_code error;
  std::filesystem::path here = std::filesystem::current_path(error);
  if (error && (std::filesystem::path(recipe.name).is_relative() || recipe.directory.empty()))
    return run_error("the current directory cannot be found: " + error.message(), "go to one that exists");
  return here;
}

Result<Opened> open_recipe(const std::filesystem::path& path, const RecipeOptions& options) {
  Opened out;
  Recipe& recipe = out.recipe;
  static_cast<RecipeInput&>(recipe) = options;
  recipe.name = path.string();
  out.here = TRY(current_directory(recipe));
  recipe.path = (out.here / path).lexically_normal();
  recipe.text = TRY(recipe_text(path, options, LuaLimits().source));
  LuaLimits limits;
  limits.seconds = options.seconds;
  limits.bytes = options.bytes;
  out.script = TRY(RecipeScript::run(recipe, limits));
  return out;
}

/// Reads what the script returned into `recipe`, which has what it was run from. `here` is the current directory.
Status judge(RecipeScript& script, const std::filesystem::path& here, const std::shared_ptr<const Confinement>& within, int64_t steps,
             Recipe* recipe) {
  PathRules paths(folder_of(recipe->name), recipe->directory.empty() ? here : recipe->directory, script.arguments().given_texts(),
                  recipe->confine, within);
  TRY_STATUS(Reader(script.language(), paths, script.sandbox(), *recipe, steps).read(script.returned(), recipe));
  recipe->confinement = paths.confinement();
  return ok();
}

}  // namespace

Result<std::optional<CompareSpec>> read_compare(const std::filesystem::path& path, const RecipeOptions& options) {
  const Opened opened = TRY(open_recipe(path, options));
  if (opened.script->returned().kind != Entry::Kind::Compare) return std::optional<CompareSpec>();
  PathRules paths(folder_of(path), opened.here, {}, options.confine);
  Reader reader(opened.script->language(), paths, opened.script->sandbox(), opened.recipe, 0);
  return std::optional(TRY(reader.compare_spec(opened.script->returned())));
}

Result<Recipe> read_recipe(const std::filesystem::path& path, const RecipeOptions& options) {
  Opened opened = TRY(open_recipe(path, options));
  Recipe& recipe = opened.recipe;
  RecipeScript& script = *opened.script;
  TRY_STATUS(judge(script, opened.here, options.within, options.steps, &recipe));
  recipe.offers = script.language().offers();
  for (const LuaSource& source : script.sandbox().sources()) {
    recipe.modules.emplace(source.path.string(), source.text);
    if (!source.module.empty()) recipe.required.emplace(source.module, source.path.string());
  }
  if (recipe.epochs > 0) recipe.script = std::move(opened.script);
  return std::move(recipe);
}

Result<Recipe> with_steps(const Recipe& recipe, int64_t steps) {
  Recipe out;
  static_cast<RecipeInput&>(out) = recipe;
  out.name = recipe.name;
  recipe.script->sandbox().renew();
  TRY_STATUS(judge(*recipe.script, TRY(current_directory(out)), recipe.confinement, steps, &out));
  return out;
}

}  // namespace galley
