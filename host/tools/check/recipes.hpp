// Small recipes with a plugin's strategies and data, made of its example.lua.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host/tools/check/tests.hpp"

namespace galley {

/// A recipe of the check's own.
struct SmallRecipe {
  std::string model, data;        ///< Lua
  std::vector<std::string> uses;  ///< use "…" { … }; the strategy that it is for comes first
  std::string entries = "";       ///< further entries, each with its comma

  /// Lua of so many steps.
  std::string text(int64_t steps) const;
};

/// What small recipes are made of beside the plugin's own: models/check/small.toml, which says what each is for. All of it is Lua.
struct Around {
  std::vector<std::string> models;
  std::string data, optimizer;
  std::vector<std::vector<std::string>> needs;
  std::vector<std::string> beside;
};
Result<Around> read_around(const CheckContext& context);

/// What example.lua beside a plugin's manifest says: the lines of it that begin with `use "`, `data.` and `model `.
struct Example {
  std::string model, data;                  ///< "": it says none
  std::map<std::string, std::string> uses;  ///< by strategy
  /// Returns the recipe's line that uses the strategy: the example's, or one without options.
  std::string use_of(const std::string& strategy) const;
};
Example example_of(const Plugin& plugin);

/// Writes a recipe into the test's folder, with what lies beside the plugin's example.
Result<std::filesystem::path> write_recipe(const CheckContext& context, const std::string& name, const std::string& text);

/// A recipe with this strategy, or this kind of data, that can be planned: of two small models, alone or beside an optimizer, an adapter and
/// mixed precision. Without a recipe: why the last one was refused.
struct FoundRecipe {
  std::optional<SmallRecipe> recipe;
  std::optional<Error> refused;
};
Result<FoundRecipe> find_recipe(const CheckContext& context, const std::string& strategy);

}  // namespace galley
