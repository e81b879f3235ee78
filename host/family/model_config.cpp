// The configuration of a model: from a recipe, a folder or a GGUF file, and what is saved of it.
#include <algorithm>

#include "host/base/gguf.hpp"
#include "host/base/json.hpp"
#include "host/base/tensor_files.hpp"
#include "host/family/family.hpp"
#include "host/family/gguf_model.hpp"
#include "host/family/task.hpp"

namespace galley {

Result<ModelConfig> read_model_config(const Recipe& recipe, const FamilyFolders& folders) {
  ModelConfig out;
  if (recipe.model.path.empty()) {
    out.config = recipe.model.config;
    out.origin = recipe.model.place.text();
    out.model_type = recipe.model.family;
    out.config["model_type"] = Value(out.model_type);
    out.random = true;
  } else if (const std::filesystem::path weights = tensor_files::Reader::file_of(recipe.model.path); gguf::is_gguf(weights)) {
    TRY_STATUS(read_gguf_model(weights, folders, &out));
    out.folder = recipe.model.path;
    out.model_type = Value(out.config).text_field("model_type");
    out.random = recipe.model.random;
    if (out.random) out.config.erase(kGgufTypes);
  } else {
    const std::filesystem::path file = recipe.model.path / "config.json";
    std::error_code error;
    if (!std::filesystem::exists(file, error))
      return recipe_error(recipe.model.place.text() + ": no config.json in " + recipe.model.path.string(),
                          "a model is a local folder with config.json and model.safetensors, or a GGUF file; `hf download ORG/NAME "
                          "--local-dir DIR` gets one from the Hugging Face hub");
    Result<Value> value = read_json(file);
    if (!value) {  // the recipe names it
      Error unreadable = std::move(value).error();
      unreadable.exit = Exit::Recipe;
      return unreadable;
    }
    const Table* table = value->as<Table>();
    if (!table) return recipe_error(file.string() + ": not a JSON object");
    out.config = *table;
    out.folder = recipe.model.path;
    out.origin = file.string();
    const auto* type = value->field<std::string>("model_type");
    if (!type && recipe.model.family.empty()) return recipe_error(file.string() + ": no 'model_type'");
    out.model_type = type ? *type : recipe.model.family;
    out.random = recipe.model.random;
  }
  Family family = TRY(find_family(out.model_type, folders, out.origin));
  const Task task = TRY(choose_task(family, recipe, out));
  out.architecture = task.architecture;
  out.learning = TRY(learning_of(task, recipe, out.config));
  const std::vector<std::string> counting = texts_in(TRY(family_field(*family.lua, "counts_tokens")));
  out.learning.counts_tokens = std::ranges::find(counting, out.model_type) != counting.end();
  return out;
}

void describe_model(const ModelConfig& model, const std::string& dtype, const std::vector<ConfigKey>& keys,
                    std::vector<Document>& documents) {
  Table config = model.config;
  config.erase("torch_dtype");
  config["dtype"] = Value(dtype);
  for (const ConfigKey& key : keys)
    if (Result<Value> value = parse_json(key.json, key.key)) config[key.key] = std::move(*value);
  documents.push_back({"model/config.json", to_json(Value(std::move(config)), 2) + "\n"});
}

}  // namespace galley
