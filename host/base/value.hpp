// What a recipe says, as plain data: nothing here refers to Lua, which is closed before planning begins.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace galley {

/// Where something was written: "recipe.lua:14".
struct Place {
  std::string file;
  int line = 0;
  std::string text() const { return line > 0 ? file + ":" + std::to_string(line) : file; }
};

/// A quantity that depends on the step, tabulated: table[i] is its value at step i + 1; the last entry holds from there on.
struct Schedule {
  std::string text;           ///< how the recipe wrote it, e.g. "cosine{peak=0.001, warmup=5}", for reports
  std::vector<double> table;  ///< never empty
  double at(int64_t step) const {
    const auto last = static_cast<int64_t>(table.size()) - 1;
    return table[static_cast<size_t>(step < 1 ? 0 : step - 1 > last ? last : step - 1)];
  }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

struct Value;
using List = std::vector<Value>;
using Table = std::map<std::string, Value>;

/// nil, boolean, integer, number, string, list, table or schedule.
struct Value : std::variant<std::monostate, bool, int64_t, double, std::string, List, Table, Schedule> {
  using variant::variant;
  bool is_nil() const { return index() == 0; }
  template <class T>
  const T* as() const {
    return std::get_if<T>(this);
  }
  /// An integer or a number, as a number.
  bool number(double* out) const {
    if (const auto* i = as<int64_t>()) {
      *out = static_cast<double>(*i);
      return true;
    }
    if (const auto* d = as<double>()) {
      *out = *d;
      return true;
    }
    return false;
  }
  /// "nil", "boolean", "integer", "number", "string", "list", "table", "schedule": for messages.
  const char* type_name() const {
    static constexpr const char* names[] = {"nil", "boolean", "integer", "number", "string", "list", "table", "schedule"};
    return names[index()];
  }
};

}  // namespace galley
