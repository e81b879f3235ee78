// Judges texts that a model has written by what was expected: `match` of a recipe's `evaluate`.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "host/base/value.hpp"
#include "host/lua/function.hpp"
#include "host/recipe/recipe.hpp"
#include "host/recipe/script.hpp"

namespace galley {

/// Returns the F-measure of the longest common subsequence of words (Lin 2004, "ROUGE: a package for automatic evaluation of summaries",
/// section 3.1): 2 P R / (P + R), with P and R its length over the words of `text` and of `expected`; 0 where there are none. Words are
/// runs of letters and digits, in lower case: of ASCII as in Google's rouge_score without its stemmer. [thread-safe]
double rouge_l(std::string_view text, std::string_view expected);

/// Used by one thread. A pattern or a function runs in a sandbox of its own, with a limit of time for each call.
class TextJudge {
 public:
  /// Returns null where the recipe judges nothing. Refers to the recipe. Errors have the place of `evaluate`.
  static Result<std::unique_ptr<TextJudge>> open(const Recipe& recipe);

  /// Returns whether it compares with what is expected, which has to be there then.
  bool compares() const;
  /// Returns a number, mostly from 0 to 1. `line` is the prompt's, for a function. What a function raises, or returns besides a number or
  /// a boolean, is an error.
  Result<double> judge(const std::string& text, const std::optional<std::string>& expected, const Value& line);

 private:
  explicit TextJudge(const Recipe& recipe) : recipe_(recipe) {}
  Status load();
  Result<double> by_pattern(const std::string& text, const std::optional<std::string>& expected);
  Result<std::optional<std::string>> found_in(const std::string& text);

  const Recipe& recipe_;
  std::unique_ptr<RecipeScript> script_;
  std::unique_ptr<Sandbox> own_;
  std::optional<LuaFunction> function_;
};

}  // namespace galley
