// Named entries of a table in a recipe, taken by name and type; what is wrong is told with the line of the entry.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

/// How a message shows a value: "ten" in quotes, 0.5, a list, a schedule.
std::string shown(const Value& value);

/// Names and the lines they were written in.
using EntryLines = std::map<std::string, int>;

/// Refers to the table and the lines, which outlive it. Absent entries and nil are nullopt.
class Fields {
 public:
  /// `owner` is what unknown names are said to be of ("recipe", "save"); `prefix` goes before names in messages ("save.").
  Fields(const Table& table, Place place, const EntryLines& lines, std::string owner, std::string prefix = {})
      : table_(table), place_(std::move(place)), lines_(lines), owner_(std::move(owner)), prefix_(std::move(prefix)) {}

  /// An error for the first entry, by line, that is not one of `known`.
  Status only(std::initializer_list<const char*> known) const;

  const Value* find(const std::string& name) const;
  Place place_of(const std::string& name) const;
  Result<std::optional<int64_t>> integer(const std::string& name, int64_t least, int64_t most = INT64_MAX) const;
  Result<std::optional<double>> number(const std::string& name) const;
  Result<std::optional<bool>> boolean(const std::string& name) const;
  Result<std::optional<std::string>> text(const std::string& name) const;
  /// The entry as fields of its own; `example` shows how such a table looks.
  Result<std::optional<Fields>> table(const std::string& name, const std::string& example) const;

  /// "<place>: '<name>' must be <wanted>, got <value>".
  Error wrong(const std::string& name, const std::string& wanted, std::string hint = {}) const;
  Error missing(const std::string& name, std::string hint) const;
  /// "<place of the entry>: <cause>".
  Error error(const std::string& name, const std::string& cause, std::string hint = {}) const;

 private:
  const Table& table_;
  Place place_;
  const EntryLines& lines_;
  std::string owner_, prefix_;
};

}  // namespace galley
