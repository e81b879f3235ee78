// Typed options by name, wherever a person writes them: entries of a recipe, options of strategies and data, a target, the parts of a
// tokenizer. All are held against an OptionSpec, and what is wrong is said in one way:
//
//   recipe.lua:14: 'steps' of the recipe must be a whole number in [1, 10000000], not 0
//   recipe.lua:14: unknown option 'stpes' of the recipe; did you mean 'steps'?
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/option_spec.hpp"
#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

/// What messages say of options.
struct OptionContext {
  std::function<Place(const std::string& name)> place;  ///< where an option stands
  std::string owner = {};                               ///< whose they are: "the recipe"; "": nobody's
  std::string prefix = {};                              ///< before names: "save."
  std::function<std::string(const Value& value)> show = value_text;
};

/// Reads the options in a table, which outlives it. Absent ones, and nil, are nullopt. Errors have exit code Recipe.
class OptionReader {
 public:
  OptionReader(const Table& table, OptionContext context) : table_(&table), context_(std::move(context)) {}

  /// An error for the first name, by line, that is not known, with the nearest one, or the one that it is an alias of.
  Status only(std::span<const OptionSpec> known) const;
  Status only(std::initializer_list<const char*> known) const;

  /// Null when the option is absent or nil.
  const Value* find(const std::string& name) const;
  /// The value in the form of OptionSpec::accept; the default, or nil, when it is absent; an error when it is required then.
  Result<Value> take(const OptionSpec& spec) const;

  Result<std::optional<int64_t>> integer(const std::string& name, int64_t least = INT64_MIN, int64_t most = INT64_MAX) const;
  Result<std::optional<double>> number(const std::string& name, const Range& range = {}) const;
  Result<std::optional<bool>> boolean(const std::string& name) const;
  Result<std::optional<std::string>> text(const std::string& name) const;
  /// One or several; not none.
  Result<std::optional<std::vector<std::string>>> texts(const std::string& name) const;
  /// Which of the choices it is.
  Result<std::optional<size_t>> choice(const OptionSpec& spec) const;

  /// "<place>: '<name>' of <owner> must be <wanted>, not <value>"
  Error wrong(const std::string& name, const std::string& wanted, std::string hint = {}) const;
  /// "<place>: '<name>' of <owner> is missing"
  Error missing(const std::string& name, std::string hint) const;
  /// "<place of the option>: <cause>"
  Error error(const std::string& name, const std::string& cause, std::string hint = {}) const;
  Place place_of(const std::string& name) const { return context_.place(name); }
  /// "'<name>' of <owner>"
  std::string called(const std::string& name) const;

 private:
  template <class T>
  Result<std::optional<T>> take_as(OptionSpec spec) const;

  const Table* table_;
  OptionContext context_;
};

}  // namespace galley
