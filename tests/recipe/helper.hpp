// What the tests of recipes share: a folder with a recipe in it, read and told about without the folder's name.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "host/recipe/recipe.hpp"
#include "tests/base/folder.hpp"

namespace galley {

class RecipeFolder : public Folder {
 public:
  Result<Recipe> read(const std::string& text, const RecipeOptions& options = {}) const { return read_recipe(put("r.lua", text), options); }

  /// The recipe, which is expected to be right.
  Recipe recipe(const std::string& text, const RecipeOptions& options = {}) const {
    Result<Recipe> made = read(text, options);
    EXPECT_TRUE(made.ok()) << made.error().cause << "\n" << made.error().hint;
    return made.ok() ? *made : Recipe{};
  }

  /// The cause of its error, without this folder's name; "" when there is none. `hint` gets the hint.
  std::string cause(const std::string& text, const RecipeOptions& options = {}, std::string* hint = nullptr) const {
    const Result<Recipe> made = read(text, options);
    if (made.ok()) return "";
    EXPECT_EQ(made.error().exit, Exit::Recipe);
    EXPECT_EQ(made.error().cause.find('\n'), std::string::npos);
    if (hint) *hint = without(made.error().hint);
    return without(made.error().cause);
  }

  std::string without(std::string text) const {
    const std::string prefix = path().string() + "/";
    for (size_t at = text.find(prefix); at != text.npos; at = text.find(prefix)) text.erase(at, prefix.size());
    return text;
  }
};

/// For a recipe that is to be stopped.
inline RecipeOptions limited(double seconds, size_t bytes = RecipeOptions().bytes) {
  RecipeOptions out;
  out.seconds = seconds;
  out.bytes = bytes;
  return out;
}

/// A recipe that is right, with room for more named entries (line 4) and strategies (line 5).
inline std::string with(const std::string& named, const std::string& uses = "") {
  return "return recipe {\n  model = model { family = 'gpt2', config = { n_layer = 1 } },\n  data = data.random {},\n  " + named + "\n  " +
         uses + "\n}\n";
}
inline std::string uses(const std::string& text) { return with("steps = 10,", text); }

}  // namespace galley
