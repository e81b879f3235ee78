#include "host/tools/inference/folder_study.hpp"

#include <algorithm>
#include <cctype>

#include "host/base/confinement.hpp"
#include "host/base/file.hpp"
#include "host/base/gguf.hpp"
#include "host/base/json.hpp"
#include "host/session/run.hpp"
#include "host/tokens/new_tokens.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// `format`: the strategy that reads weights as the model's folder stores them; "": they are numbers.
constexpr const char* kModelRecipe =
    "return recipe { model = model { path = arg('model') }, data = data.random {}, batch = 1, length = arg('length', 512), steps = 1,\n"
    "  arg('format', '') ~= '' and use(arg('format', '')) {} }";
constexpr const char* kAdapterRecipe =
    "return recipe { model = model { path = arg('model') }, data = data.random {}, batch = 1, length = arg('length', 512), steps = 1,\n"
    "  arg('format', '') ~= '' and use(arg('format', '')) {}, use(arg('strategy')) { path = arg('adapter') } }";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// The positions of a row that nobody has given: the model's, by the names that config.json has for them, and 512 at most.
int64_t default_length(const fs::path& model) {
  int64_t length = 512;
  const Result<Value> config = read_json(model / "config.json");  // what is wrong with it is said by whoever builds the model
  if (!config) return length;
  for (const char* key : {"max_position_embeddings", "n_positions"})
    if (const auto* positions = config->field<int64_t>(key); positions && *positions > 0) length = std::min(length, *positions);
  return length;
}

std::string length_text(const fs::path& model, int64_t given) { return std::to_string(given ? given : default_length(model)); }

/// What adapter_config.json says of where the adapter belongs.
struct AdapterConfig {
  std::string strategy;  ///< the one that is called as PEFT calls the kind of adapter
  std::string base;      ///< "": it does not say
};

Result<AdapterConfig> read_adapter_config(const fs::path& folder) {
  const fs::path file = folder / "adapter_config.json";
  const Value value = TRY(read_json(file));
  AdapterConfig out = {value.text_field("peft_type"), value.text_field("base_model_name_or_path")};
  if (out.strategy.empty()) return recipe_error(file.string() + ": no 'peft_type'", "the folder is not one that PEFT or Galley wrote");
  std::transform(out.strategy.begin(), out.strategy.end(), out.strategy.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

Result<fs::path> base_of(const fs::path& folder, const AdapterConfig& config, const fs::path& given) {
  std::error_code error;
  const fs::path base = given.empty() ? fs::path(config.base) : given;
  const std::string who = (folder / "adapter_config.json").string();
  // A run that has trained more of the model than the adapter saves both beside each other.
  const fs::path beside = fs::absolute(folder).lexically_normal() / ".." / "model";
  if (base.empty() && is_there(beside / "config.json") && Confinement::check(beside)) return fs::canonical(beside, error);
  if (base.empty())
    return recipe_error(who + ": 'base_model_name_or_path' is not set", "name the folder of the adapter's base model: --base DIR");
  if (given.empty())
    if (const Status inside = Confinement::check(base); !inside)
      return recipe_error(who + ": 'base_model_name_or_path': " + inside.error().cause, "name the folder of its base model: --base DIR");
  if (fs::is_directory(base, error)) return base;
  if (!given.empty()) return recipe_error("--base " + given.string() + ": there is no such folder", missing_folder_hint(given));
  return recipe_error(who + ": the base model '" + config.base + "' is not a folder here",
                      "name its folder with --base DIR; " + missing_folder_hint(base));
}

/// Strategies that understand a key of the model's configuration that plain weights do not have.
std::vector<std::string> formats_of(const fs::path& model, const StudyOptions& options) {
  std::vector<std::string> out;
  const Result<Value> config = read_json(model / "config.json");
  const Table of_gguf = {{kGgufTypes, Value()}};
  const auto* keys = config ? config->as<Table>() : tensor_files::Reader::file_of(model).extension() == ".gguf" ? &of_gguf : nullptr;
  if (!keys) return out;
  const fs::path built_in[] = {options.installation.plugins};
  const auto plugins = Plugins::scan(plugin_search_path(built_in, options.plugin_path), [](const std::string&) {});
  for (const auto& plugin : plugins->all())
    for (const StrategySpec& strategy : plugin->manifest.strategies)
      if (std::any_of(strategy.config.begin(), strategy.config.end(), [&](const std::string& key) { return keys->contains(key); }))
        out.push_back(strategy.name);
  return out;
}

/// The recipe on weights as numbers; where that cannot be, with the first strategy that can read them as they are stored. An error is what
/// was wrong without any.
Result<std::unique_ptr<Study>> study_stored(const fs::path& recipe, const fs::path& model, const StudyOptions& options) {
  Result<std::unique_ptr<Study>> out = study(recipe, options);
  if (out || out.error().exit != Exit::Recipe) return out;
  for (const std::string& format : formats_of(model, options)) {
    StudyOptions with = options;
    with.sets["format"] = format;
    Result<std::unique_ptr<Study>> made = study(recipe, with);
    if (made) return made;
    // What it says of the folder itself is worth more than that something is needed.
    if (made.error().cause.find(model.string()) != std::string::npos && made.error().exit == Exit::Recipe) out = std::move(made);
  }
  return out;
}

Result<std::unique_ptr<Study>> study_model(const fs::path& folder, int64_t length, StudyOptions options) {
  options.text = kModelRecipe;
  options.sets = {{"model", folder.string()}, {"length", length_text(folder, length)}};
  options.single_row = true;
  return study_stored("model.lua", folder, options);
}

Result<std::unique_ptr<Study>> study_adapter(const fs::path& folder, const FolderOptions& given, StudyOptions options) {
  const AdapterConfig config = TRY(read_adapter_config(folder));
  const fs::path base = TRY(base_of(folder, config, given.base));
  options.text = kAdapterRecipe;
  options.sets = {
      {"model", base.string()}, {"length", length_text(base, given.length)}, {"adapter", folder.string()}, {"strategy", config.strategy}};
  options.single_row = true;
  // What it was trained with: rows that the base does not have are what they were when the training began.
  if (const fs::path own = folder / "tokenizer.json", of = base / "tokenizer.json"; is_there(own) && is_there(of))
    options.edit = [tokens = TRY(tokens_beyond(own, of))](Recipe& recipe) { recipe.model.new_tokens = tokens; };
  return study_stored("adapter.lua", base, options);
}

}  // namespace

std::string missing_folder_hint(const fs::path& folder) {
  const std::string text = folder.string();
  const bool hub = folder.is_relative() && std::count(text.begin(), text.end(), '/') == 1 && !is_there(folder.parent_path());
  const std::string name = hub ? text : "ORG/NAME";
  return std::string(hub ? "a name on the Hugging Face hub? " : "") + "Galley reads local folders: `hf download " + name +
         " --local-dir DIR` gets one";
}

Result<FolderKind> kind_of_folder(const fs::path& folder) {
  std::error_code error;
  if (is_there(folder / "run.toml")) return FolderKind::Run;
  if (is_there(folder / "adapter_config.json")) return FolderKind::Adapter;
  if (is_there(folder / "config.json")) return FolderKind::Model;
  if (const fs::path weights = tensor_files::Reader::file_of(folder); gguf::is_gguf(weights) && is_there(weights)) return FolderKind::Model;
  if (!fs::is_directory(folder, error)) return recipe_error(folder.string() + ": there is no such folder", missing_folder_hint(folder));
  return recipe_error(folder.string() + " has no run.toml, config.json or adapter_config.json",
                      "name a run's directory, or the folder of a model or an adapter");
}

Result<FolderStudy> study_folder(const fs::path& folder, const FolderOptions& given, StudyOptions options) {
  FolderStudy out;
  const FolderKind kind = TRY(kind_of_folder(folder));
  if (kind == FolderKind::Run) confine_run(TRY(open_run(folder)), folder, &options);
  else if (options.unconfined) return recipe_error("--unconfined applies to a run's directory only");
  else if (options.confine == Confine::Yes && !options.within)
    options.within = std::make_shared<Confinement>(std::vector{reach_of(folder), reach_of(given.base.empty() ? folder : given.base)},
                                                   kind == FolderKind::Model ? "the model's folder" : "the adapter's folder",
                                                   "without --confine, links and names may lead anywhere");
  if (kind == FolderKind::Model) {
    out.study = TRY(study_model(folder, given.length, std::move(options)));
    out.study->recipe.data.place = {folder.string()};  // the recipe is nobody's
  } else if (kind == FolderKind::Adapter) {
    out.study = TRY(study_adapter(folder, given, std::move(options)));
    out.study->recipe.data.place = {folder.string()};
  } else if (TRY(find_latest(folder / "state")) || TRY(find_latest(folder / best_folder))) {
    out.study = TRY(study_run(folder, std::move(options))).study;
    const auto weights = TRY(find_weights(out.study->recipe, folder));
    if (!weights) return nothing_saved(folder);
    out.state = *weights;
  } else {
    options.unconfined = false;
    for (const char* name : {"adapter", "model"})
      if (options.purpose == Purpose::Export && is_there(folder / name)) return study_folder(folder / name, given, std::move(options));
    return nothing_saved(folder);
  }
  return out;
}

Result<std::unique_ptr<Session>> FolderStudy::open(const SessionOptions& options) const {
  std::unique_ptr<Session> session = TRY(Session::open(*study, nullptr, options));
  if (!state.empty()) TRY_STATUS(session->load_weights(state));
  return session;
}

}  // namespace galley
