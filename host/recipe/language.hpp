// The recipe's language on Lua's side: use, model, data, arg, the schedules and recipe. They only take down what was said and
// where; recipe.cpp judges it once Lua has come to its end.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "host/base/result.hpp"
#include "host/base/schedule.hpp"
#include "host/base/value.hpp"
#include "host/lua/convert.hpp"
#include "host/lua/sandbox.hpp"
#include "host/recipe/arguments.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// One thing that a recipe made.
struct Entry {
  enum class Kind { Use, Model, Data, Schedule, Function, Recipe, Compare } kind = Kind::Use;
  size_t number = 0;  ///< its place among all entries
  std::string name;   ///< of a strategy, a kind of data, or "cosine", "linear", "constant"
  Table options;
  std::map<int64_t, Value> items;  ///< of a recipe, a variant or a mix: its positional entries
  Place place;
  int function = LUA_NOREF;       ///< of a Function: its key in Lua's registry
  const char* kind_name() const;  ///< "a strategy", "a model", …
};

/// An entry among other values. Outlived by the language, which owns the entry.
class EntryReference final : public Foreign {
 public:
  explicit EntryReference(const Entry& entry) : entry_(&entry) {}
  const char* type_name() const override { return "entry"; }
  std::string written() const override { return entry_->name; }
  const Entry& entry() const { return *entry_; }

 private:
  const Entry* entry_;
};

/// The entry that the value stands for; null for plain data.
const Entry* find_entry(const Value& value);

/// Defines the language in a sandbox and keeps what it makes. Outlived by the sandbox and the arguments; used by one thread at a time.
class Language {
 public:
  Language(Sandbox& sandbox, Arguments& arguments);
  Language(const Language&) = delete;
  Language& operator=(const Language&) = delete;

  Status open();
  /// Runs the text and gives what it returned: a recipe, or a comparison, whose option "variants" is a table of recipes.
  Result<const Entry*> run(std::string_view text, const std::string& name);
  /// What one_of { … } takes where it stands, from 1, by its line in the recipe's own file; without it, the first.
  void choose(std::map<int, size_t> choices) { choices_ = std::move(choices); }
  /// What was offered, in the order in which it was asked for.
  const std::vector<Offer>& offers() const { return offers_; }
  const Entry& entry(size_t number) const { return entries_[number]; }
  /// The values of a function of the step, at 1 … steps. `option` is how messages call it, `place` where it was given.
  Result<Schedule> tabulate(const Entry& function, int64_t steps, const std::string& option, const Place& place);

 private:
  friend struct LanguageFunctions;
  Entry& add(Entry::Kind kind, std::string name);

  Sandbox& sandbox_;
  Arguments& arguments_;
  Converter converter_;  // one for all, since it bounds the sum of what a recipe says
  std::deque<Entry> entries_;
  std::string name_;  ///< of the recipe's own file
  std::map<int, size_t> choices_;
  std::vector<Offer> offers_;
};

}  // namespace galley
