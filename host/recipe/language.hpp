// The recipe's language on Lua's side: use, model, data, arg, the schedules and recipe. These functions only record what was written
// where; recipe.cpp checks it once Lua has ended.
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

/// Something that a recipe has made: a strategy, a model, data, a schedule, a recipe.
struct Entry {
  enum class Kind { Use, Model, Data, Schedule, Function, Recipe, Compare } kind = Kind::Use;
  size_t number = 0;  ///< its index among all entries
  std::string name;   ///< the name of a strategy, of a kind of data, or "cosine", "linear", "constant"
  Table options;
  std::map<int64_t, Value> items;  ///< the positional entries of a recipe, a variant or a mix
  Place place;
  int function = LUA_NOREF;       ///< the key of a Function in Lua's registry
  const char* kind_name() const;  ///< "a strategy", "a model", …
};

/// An entry among other values. The language owns the entry and outlives this.
class EntryReference final : public Foreign {
 public:
  explicit EntryReference(const Entry& entry) : entry_(&entry) {}
  const char* type_name() const override { return "entry"; }
  std::string written() const override { return entry_->name; }
  const Entry& entry() const { return *entry_; }

 private:
  const Entry* entry_;
};

/// Returns the entry that the value refers to; null for plain data.
const Entry* find_entry(const Value& value);

/// Defines the language in a sandbox and keeps what it makes. The sandbox and the arguments outlive it. Used by one thread at a time.
class Language {
 public:
  Language(Sandbox& sandbox, Arguments& arguments);
  Language(const Language&) = delete;
  Language& operator=(const Language&) = delete;

  Status open();
  /// Runs the text and returns its result: a recipe, or a comparison, whose option "variants" is a table of recipes.
  Result<const Entry*> run(std::string_view text, const std::string& name);
  /// Takes down a strategy that the command line adds to the recipe, as `use` takes it: NAME, or NAME { option = value, … }.
  Status add_use(const std::string& written);
  const std::vector<const Entry*>& added() const { return added_; }
  /// Says which of its entries a one_of { … } takes, from 1, by its line in the recipe's own file; without it, the first.
  void choose(std::map<int, size_t> choices) { choices_ = std::move(choices); }
  /// Returns what one_of { … } has offered, in the order in which it was run.
  const std::vector<Offer>& offers() const { return offers_; }
  const Entry& entry(size_t number) const { return entries_[number]; }
  /// Returns the values of a function of the step, at 1 … steps. `option` is how messages call it, `place` where it was given.
  Result<Schedule> tabulate(const Entry& function, int64_t steps, const std::string& option, const Place& place);

 private:
  friend struct LanguageFunctions;
  Entry& add(Entry::Kind kind, std::string name);
  Result<Entry*> evaluate(std::string_view text, const std::string& name);

  Sandbox& sandbox_;
  Arguments& arguments_;
  Converter converter_;  // one for all, since it bounds the sum of what a recipe says
  std::deque<Entry> entries_;
  std::string name_;  ///< the name of the recipe's own file
  std::vector<const Entry*> added_;
  std::map<int, size_t> choices_;
  std::vector<Offer> offers_;
};

}  // namespace galley
