#define TOML_IMPLEMENTATION  // of the library: every other file sees declarations
#include "host/base/toml.hpp"

#include <string>
#include <utility>

namespace galley {

Value toml_value(const toml::node& node) {
  if (const auto b = node.value_exact<bool>()) return Value(*b);
  if (const auto i = node.value_exact<int64_t>()) return Value(*i);
  if (const auto d = node.value_exact<double>()) return Value(*d);
  if (const auto s = node.value_exact<std::string>()) return Value(*s);
  if (const auto* array = node.as_array()) {
    List list;
    for (const toml::node& element : *array) list.push_back(toml_value(element));
    return Value(std::move(list));
  }
  Table out;
  if (const auto* table = node.as_table())
    for (const auto& [key, value] : *table) out.emplace(std::string(key.str()), toml_value(value));
  return Value(std::move(out));
}

}  // namespace galley
