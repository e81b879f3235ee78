// Runs a recipe's Lua, from its text to what it returns. Lua is closed with its owner.
#pragma once

#include <filesystem>
#include <memory>

#include "host/base/result.hpp"
#include "host/lua/function.hpp"
#include "host/lua/sandbox.hpp"
#include "host/recipe/arguments.hpp"
#include "host/recipe/language.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Returns the folder of a path's file; "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

/// Owns the sandbox and everything in it. Used by one thread at a time; several of one recipe are independent of each other.
class RecipeScript {
 public:
  /// Runs the recipe's text, after what the command line adds. Reads the name of `recipe` and what it is read from. A recipe that is run
  /// twice returns the same twice, because nothing that it sees can change.
  static Result<std::unique_ptr<RecipeScript>> run(const Recipe& recipe, const LuaLimits& limits);

  const Entry& returned() const { return *returned_; }
  Language& language() { return language_; }
  const Arguments& arguments() const { return arguments_; }
  Sandbox& sandbox() { return *sandbox_; }
  /// Returns a function that the recipe gave as a value, by its number among the entries.
  LuaFunction function(size_t entry, const std::string& name);

 private:
  RecipeScript(std::unique_ptr<Sandbox> sandbox, const Recipe& recipe)
      : sandbox_(std::move(sandbox)), arguments_(recipe.sets), language_(*sandbox_, arguments_) {}

  std::unique_ptr<Sandbox> sandbox_;
  Arguments arguments_;
  Language language_;
  const Entry* returned_ = nullptr;
};

}  // namespace galley
