// Reads typed options by name, wherever a person writes them: entries of a recipe, options of strategies and data, a target, the parts of a
// tokenizer. All are checked by an OptionSpec, and all errors have one form:
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

/// What messages need to know of options.
struct OptionContext {
  std::function<Place(const std::string& name)> place;  ///< returns the place of an option
  std::string owner = {};                               ///< the options' owner: "the recipe"; "": none
  std::string prefix = {};                              ///< comes before names: "save."
  std::function<std::string(const Value& value)> show = value_text;
};

/// Reads the options in a table, which outlives it. An option that is absent or nil gives nullopt. Errors have exit code Recipe.
class OptionReader {
 public:
  OptionReader(const Table& table, OptionContext context) : table_(&table), context_(std::move(context)) {}

  /// Checks that all names are known. The error names the first unknown one, by line, and the nearest name or the one that it is an alias
  /// of.
  Status only(std::span<const OptionSpec> known) const;
  Status only(std::initializer_list<const char*> known) const;

  /// Returns the value of an option; null if it is absent or nil.
  const Value* find(const std::string& name) const;
  /// Returns the value in the form of OptionSpec::accept. If it is absent: the default or nil, or an error if it is required.
  Result<Value> take(const OptionSpec& spec) const;

  Result<std::optional<int64_t>> integer(const std::string& name, int64_t least = INT64_MIN, int64_t most = INT64_MAX) const;
  Result<std::optional<double>> number(const std::string& name, const Range& range = {}) const;
  Result<std::optional<bool>> boolean(const std::string& name) const;
  Result<std::optional<std::string>> text(const std::string& name) const;
  /// Returns one text or several; an empty list is an error.
  Result<std::optional<std::vector<std::string>>> texts(const std::string& name) const;
  /// Returns which of the choices the value is.
  Result<std::optional<size_t>> choice(const OptionSpec& spec) const;

  /// Makes the error "<place>: '<name>' of <owner> must be <wanted>, not <value>".
  Error wrong(const std::string& name, const std::string& wanted, std::string hint = {}) const;
  /// Makes the error "<place>: '<name>' of <owner> is missing".
  Error missing(const std::string& name, std::string hint) const;
  /// Makes the error "<place of the option>: <cause>".
  Error error(const std::string& name, const std::string& cause, std::string hint = {}) const;
  Place place_of(const std::string& name) const { return context_.place(name); }
  /// Returns "'<name>' of <owner>".
  std::string called(const std::string& name) const;

 private:
  template <class T>
  Result<std::optional<T>> take_as(OptionSpec spec) const;

  const Table* table_;
  OptionContext context_;
};

}  // namespace galley
