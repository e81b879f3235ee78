#include "host/family/task.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "host/base/file.hpp"
#include "host/base/nearest.hpp"

namespace galley {
namespace {

/// The files of families, those first whose text has the model_type: the others are opened only where none of these has it.
Result<std::vector<std::filesystem::path>> likely_first(const std::string& model_type, const FamilyFolders& folders) {
  std::vector<std::filesystem::path> files = TRY(family_files(folders));
  const auto names_it = [&](const std::filesystem::path& file) {
    const Result<std::string> text = read_text(file);  // what cannot be read is said when it is opened
    return text && text->find('"' + model_type + '"') != std::string::npos;
  };
  std::ranges::stable_partition(files, names_it);
  return files;
}

}  // namespace

Result<Family> find_family(const std::string& model_type, const FamilyFolders& folders, const std::string& origin) {
  std::map<std::filesystem::path, std::vector<std::string>> known;  // in the order of the files
  for (const auto& file : TRY(likely_first(model_type, folders))) {
    Family family = TRY(open_family(file, folders));
    if (std::ranges::find(family.model_types, model_type) != family.model_types.end()) return family;
    known[file] = std::move(family.model_types);
  }
  std::vector<std::string> all;
  for (const auto& [file, types] : known) all.insert(all.end(), types.begin(), types.end());
  std::string list;
  for (const std::string& k : all) list += (list.empty() ? "" : ", ") + k;
  const std::string guess = did_you_mean(model_type, all);
  return recipe_error(origin + ": no family for model_type '" + model_type + "'", (guess.empty() ? "" : guess + " ") + "known: " + list);
}

namespace {

/// What models of a type do, the usual first.
Result<std::vector<Task>> family_tasks(Family& family, const std::string& model_type) {
  const auto by_type = [&](const Value& value) {
    const auto* table = value.as<Table>();
    const auto* text = value.as<std::string>();
    if (text) return *text;
    return table ? value.text_field(model_type) : std::string();
  };
  const Value tasks = TRY(family_field(*family.lua, "tasks"));
  const auto* list = tasks.as<List>();
  if (!list || list->empty())
    return std::vector<Task>{{"causal-lm", by_type(TRY(family_field(*family.lua, "architecture"))), Fill::NextTokens, true, false}};
  std::vector<Task> out;
  for (const Value& entry : *list) {
    const auto* table = entry.as<Table>();
    if (!table) return recipe_error("a family's 'tasks' is a list of tables { name, labels, architecture }");
    Task task;
    task.name = entry.text_field("name");
    if (const auto it = table->find("architecture"); it != table->end()) task.architecture = by_type(it->second);
    const std::string labels = entry.text_field("labels");
    const size_t fill = fill_named(labels);
    task.learns = !labels.empty();
    if (task.learns && (fill == kFills || !kFillInfo[fill].unit))
      return recipe_error("task '" + task.name + "': there are no labels '" + labels + "'");
    if (task.learns) task.labels = static_cast<Fill>(fill);
    const auto* several = entry.field<bool>("several");
    task.several = several && *several;
    out.push_back(std::move(task));
  }
  return out;
}

/// The token that a key of the configuration names; the first of several.
std::optional<int64_t> token_in(const Table& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return std::nullopt;
  const auto* list = it->second.as<List>();
  const auto* id = list && !list->empty() ? list->front().as<int64_t>() : it->second.as<int64_t>();
  return id ? std::optional(*id) : std::nullopt;
}

/// Among how many labels the configuration says that a model chooses; 0: it does not.
int64_t classes_in(const Table& config) {
  const auto names = config.find("id2label");
  const auto* table = names == config.end() ? nullptr : names->second.as<Table>();
  return table ? static_cast<int64_t>(table->size()) : token_in(config, "num_labels").value_or(0);
}

}  // namespace

Result<Task> choose_task(Family& family, const Recipe& recipe, const ModelConfig& model) {
  const std::vector<Task> tasks = TRY(family_tasks(family, model.model_type));
  std::string list;
  std::vector<std::string> names;
  for (const Task& task : tasks) {
    list += (list.empty() ? "" : ", ") + task.name;
    names.push_back(task.name);
    if (task.name == recipe.model.task) return task;
  }
  if (!recipe.model.task.empty())
    return recipe_error(
        recipe.model.place.text() + ": 'task' = '" + recipe.model.task + "' is none that models of type '" + model.model_type + "' have",
        did_you_mean(recipe.model.task, names) + " known: " + list);
  const auto saved = model.config.find("architectures");
  const std::vector<std::string> architectures = saved == model.config.end() ? std::vector<std::string>() : texts_in(saved->second);
  const std::string problem = Value(model.config).text_field("problem_type");
  const bool real = problem.empty() ? classes_in(model.config) == 1 : problem == "regression";
  const Task* out = nullptr;
  for (const Task& task : tasks) {
    if (task.architecture.empty() || std::ranges::find(architectures, task.architecture) == architectures.end()) continue;
    if (!out || (task.several == (problem == "multi_label_classification") && (task.labels == Fill::RowValues) == real)) out = &task;
  }
  return out ? *out : tasks.front();
}

Result<Learning> learning_of(const Task& task, const Recipe& recipe, Table& config) {
  Learning out;
  out.task = task.name;
  out.learns = task.learns;
  out.labels = task.labels;
  out.several = task.several;
  const auto table = [&](const char* key) -> const Table* {
    const auto it = config.find(key);
    return it == config.end() ? nullptr : it->second.as<Table>();
  };
  const bool real = task.labels == Fill::RowValues, has_labels = of_rows(task.labels) || task.labels == Fill::TokenLabels;
  if (recipe.model.labels > 0 && !has_labels)
    return recipe_error(recipe.model.place.text() + ": 'labels' = " + std::to_string(recipe.model.labels) + ", but the task '" + task.name +
                            "' has no labels",
                        "take it out, or say which task: task = \"sequence-classification\"");
  if (has_labels) {
    // What transformers takes where the file says nothing.
    constexpr int64_t usual = 2;
    const int64_t said = classes_in(config);
    const bool saved_for_it = Value(config).text_field("problem_type") == "regression";
    out.classes = recipe.model.labels > 0 ? recipe.model.labels : said > 0 ? said : real && !saved_for_it ? 1 : usual;
    if (of_rows(task.labels))
      config["problem_type"] = Value(std::string(real           ? "regression"
                                                 : task.several ? "multi_label_classification"
                                                                : "single_label_classification"));
    const std::vector<std::string>& names = recipe.model.label_names;
    if (!names.empty()) out.classes = static_cast<int64_t>(names.size());
    if (!names.empty() || out.classes != (said > 0 ? said : usual)) {
      Table ids, labels;
      for (int64_t i = 0; i < out.classes; ++i) {
        const std::string name = names.empty() ? "LABEL_" + std::to_string(i) : names[static_cast<size_t>(i)];
        ids.emplace(std::to_string(i), name);
        labels.emplace(name, i);
      }
      config["id2label"] = Value(std::move(ids));
      config["label2id"] = Value(std::move(labels));
    }
    if (const Table* ids = table("label2id"))
      for (const auto& [name, id] : *ids)
        if (const auto* number = id.as<int64_t>()) out.names.emplace(name, *number);
  }
  const int64_t padding = token_in(config, "pad_token_id").value_or(0);
  out.padding = static_cast<int32_t>(padding);
  out.start = static_cast<int32_t>(token_in(config, "decoder_start_token_id").value_or(padding));
  if (task.labels == Fill::TargetLabels && task.learns) config.try_emplace("decoder_start_token_id", static_cast<int64_t>(out.start));
  return out;
}

}  // namespace galley
