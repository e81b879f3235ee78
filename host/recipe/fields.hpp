// Reads named entries of a table in a recipe; errors name the line of the entry.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "host/base/option_reader.hpp"
#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

/// Returns a value as messages show it: 'ten', 0.5, a strategy, a schedule.
std::string shown(const Value& value);

/// The lines in which names were written.
using EntryLines = std::map<std::string, int>;

/// Reads a table's entries by name, and says at which line they are. Refers to the table and the lines, which outlive it.
class Fields : public OptionReader {
 public:
  /// `owner` names the entries' owner ("the recipe", "cosine"); `prefix` comes before names in messages ("save.").
  Fields(const Table& table, Place place, const EntryLines& lines, std::string owner, std::string prefix = {});

  /// Returns the entry as fields of its own; `example` shows how such a table looks.
  Result<std::optional<Fields>> table(const std::string& name, const std::string& example) const;
};

}  // namespace galley
