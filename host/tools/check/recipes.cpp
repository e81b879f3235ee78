#include "host/tools/check/recipes.hpp"

#include <algorithm>
#include <fstream>

#include "host/base/file.hpp"
#include "host/base/toml.hpp"

namespace galley {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> texts_of(const Value* list) {
  std::vector<std::string> out;
  for (const Value& entry : list && list->as<List>() ? *list->as<List>() : List())
    if (const auto* text = entry.as<std::string>()) out.push_back(*text);
  return out;
}

}  // namespace

std::string SmallRecipe::text(int64_t steps) const {
  std::string out = "return recipe {\n  model = " + model + ",\n  data = " + data +
                    ",\n  batch = 4, length = 16, steps = " + std::to_string(steps) + ", seed = 1,\n";
  if (!entries.empty()) out += "  " + entries + "\n";
  for (const std::string& use : uses) out += "  " + use + ",\n";
  return out + "}\n";
}

std::string Example::use_of(const std::string& strategy) const {
  const auto own = uses.find(strategy);
  return own == uses.end() ? "use \"" + strategy + "\" {}" : own->second;
}

Result<Around> read_around(const CheckContext& context) {
  const fs::path& file = context.study.installation.check;
  const std::string text = TRY(read_text(file, UINT64_C(1) << 20));
  const toml::parse_result parsed = toml::parse(text, file.string());
  if (!parsed) return run_error(file.string() + ": " + std::string(parsed.error().description()));
  const Value said = toml_value(parsed.table());
  const auto at = [&](const char* key) -> const Value* {
    const auto* table = said.as<Table>();
    const auto found = table->find(key);
    return found == table->end() ? nullptr : &found->second;
  };
  Around out = {texts_of(at("models")), said.text_field("data"), said.text_field("optimizer"), {}, texts_of(at("beside"))};
  for (const Value& entry : at("needs") && at("needs")->as<List>() ? *at("needs")->as<List>() : List())
    out.needs.push_back(texts_of(&entry));
  return out;
}

Example example_of(const Plugin& plugin) {
  Example out;
  std::ifstream in(plugin.manifest.folder() / "example.lua");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model ")) out.model = line;
    if (line.starts_with("data.")) out.data = line;
    if (const size_t quote = line.find('"'); line.starts_with("use \"") && quote != std::string::npos)
      out.uses[line.substr(quote + 1, line.find('"', quote + 1) - quote - 1)] = line;
  }
  return out;
}

Result<fs::path> write_recipe(const CheckContext& context, const std::string& name, const std::string& text) {
  std::error_code error;
  // What an example reads lies beside it, and is found beside the recipe.
  for (const fs::directory_entry& entry : fs::directory_iterator(context.plugin.manifest.folder(), error)) {
    const fs::path& file = entry.path();
    if (!entry.is_regular_file() || file.extension() == ".so" || file.extension() == ".toml" || file.filename() == "example.lua") continue;
    fs::copy_file(file, context.scratch / file.filename(), fs::copy_options::skip_existing, error);
  }
  if (const fs::path text_file = context.scratch / "galley-check.txt"; !fs::exists(text_file, error)) {
    std::string lines;
    for (int i = 0; i < 200; ++i) lines += "line " + std::to_string(i * i) + " of a text, and " + std::to_string(i) + " more\n\n";
    File file = TRY(File::create(text_file));
    TRY_STATUS(file.write(lines));
  }
  const fs::path path = context.scratch / (name + ".lua");
  File file = TRY(File::create(path));
  TRY_STATUS(file.write(text));
  return path;
}

Result<FoundRecipe> find_recipe(const CheckContext& context, const std::string& strategy) {
  const Example example = example_of(context.plugin);
  const Around around = TRY(read_around(context));
  std::vector<std::string> models = around.models;
  if (!example.model.empty()) models = {example.model};
  FoundRecipe out;
  for (const auto& others : around.needs)
    for (const std::string& model : models) {
      SmallRecipe recipe = {model, example.data.empty() ? around.data : example.data, {example.use_of(strategy)}};
      recipe.uses.insert(recipe.uses.end(), others.begin(), others.end());
      const fs::path path = TRY(write_recipe(context, "found", recipe.text(4)));
      const Result<std::unique_ptr<Study>> planned = study(path, context.study);
      if (planned) {
        out.recipe = std::move(recipe);
        return out;
      }
      // The first refusal by the plugin itself says most.
      const bool of_it = planned.error().cause.find(strategy + ":") != std::string::npos || planned.error().exit == Exit::Plugin;
      if (!out.refused || (of_it && out.refused->cause.find(strategy + ":") == std::string::npos)) out.refused = planned.error();
    }
  return out;
}

}  // namespace galley
