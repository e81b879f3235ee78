// Values of recipes and other files as plain data: nothing here refers to Lua, which is closed before planning begins.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace galley {

/// The place where something was written: "recipe.lua:14".
struct Place {
  std::string file;
  int line = 0;
  std::string text() const { return line > 0 ? file + ":" + std::to_string(line) : file; }
};

/// A value of a type that a later layer defines, such as a schedule. Immutable.
class Foreign {
 public:
  virtual ~Foreign() = default;
  virtual const char* type_name() const = 0;  ///< "schedule": for messages
  virtual std::string written() const = 0;    ///< how the recipe wrote it, for reports

 protected:
  Foreign() = default;
  Foreign(const Foreign&) = default;
  Foreign& operator=(const Foreign&) = default;
};

struct Value;
using List = std::vector<Value>;
using Table = std::map<std::string, Value>;

/// nil, boolean, integer, number, string, list, table or something foreign.
struct Value : std::variant<std::monostate, bool, int64_t, double, std::string, List, Table, std::shared_ptr<const Foreign>> {
  using variant::variant;
  template <std::derived_from<Foreign> T>
  Value(T foreign) : variant(std::shared_ptr<const Foreign>(std::make_shared<const T>(std::move(foreign)))) {}
  bool is_nil() const { return index() == 0; }
  /// Returns the value as a T; null if it is of another type.
  template <class T>
  const T* as() const {
    if constexpr (std::derived_from<T, Foreign>) {
      const auto* foreign = std::get_if<std::shared_ptr<const Foreign>>(this);
      return foreign ? dynamic_cast<const T*>(foreign->get()) : nullptr;
    } else {
      return std::get_if<T>(this);
    }
  }
  /// Returns the value under a key of a table; null if this is no table, has no such key, or has a value of another type there.
  template <class T>
  const T* field(const std::string& key) const {
    const auto* table = as<Table>();
    if (!table) return nullptr;
    const auto at = table->find(key);
    return at == table->end() ? nullptr : at->second.template as<T>();
  }
  /// Returns the string under a key of a table; empty if field() is null.
  std::string text_field(const std::string& key) const {
    const auto* text = field<std::string>(key);
    return text ? *text : std::string();
  }
  /// Puts an integer or a number into `out`; returns whether the value is one.
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
  /// Returns "nil", "boolean", "integer", "number", "string", "list", "table", or the name of a foreign type, for messages.
  const char* type_name() const {
    if (const auto* foreign = as<Foreign>()) return foreign->type_name();
    static constexpr const char* names[] = {"nil", "boolean", "integer", "number", "string", "list", "table", "nothing"};
    return names[index()];
  }
};

}  // namespace galley
