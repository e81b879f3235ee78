#include "host/recipe/script.hpp"

#include <utility>
#include <vector>

#include "host/recipe/scan.hpp"

namespace galley {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

Result<std::unique_ptr<RecipeScript>> RecipeScript::run(const Recipe& recipe, const LuaLimits& limits) {
  const std::filesystem::path folder = folder_of(recipe.name);
  std::vector<std::filesystem::path> roots = {folder, folder / "lib"};
  if (!recipe.library.empty()) roots.push_back(recipe.library);
  const Sandbox::Reach reach = recipe.confine == Confine::Yes ? Sandbox::Reach::Roots : Sandbox::Reach::Anywhere;
  std::unique_ptr<RecipeScript> script(new RecipeScript(TRY(Sandbox::create(limits, std::move(roots), reach)), recipe));
  std::vector<LuaSource> modules;
  for (const auto& [module, path] : recipe.required) modules.push_back({path, path, recipe.modules.at(path), module});
  script->sandbox_->provide(std::move(modules));
  TRY_STATUS(script->language_.open());
  script->language_.choose(recipe.choices);
  for (const std::string& use : recipe.given_uses) TRY_STATUS(script->language_.add_use(use));

  Result<const Entry*> made = script->language_.run(recipe.text, recipe.name);
  // Missing arguments stand as "", which may well be what went wrong.
  if (made.ok() || script->arguments_.missing()) {
    std::vector<std::string> always = {"seed", "split"};
    if (!made.ok() || (*made)->kind == Entry::Kind::Compare) always.insert(always.end(), {"variant", "budget", "trial"});
    TRY_STATUS(script->arguments_.finish(recipe.name, recipe.library, SourceMap(recipe.text).names_asked("arg"), always));
  }
  if (!made) {
    Error error = std::move(made).error();
    if (error.exit == Exit::Recipe && !has_place(error.cause) && !error.cause.starts_with(recipe.name))
      error.cause = recipe.name + ": " + error.cause;
    return error;
  }
  script->returned_ = *made;
  return script;
}

LuaFunction RecipeScript::function(size_t entry, const std::string& name) { return {*sandbox_, language_.entry(entry).function, name}; }

}  // namespace galley
