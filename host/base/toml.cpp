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

namespace {

toml::array array_of(const List& list);
toml::table table_of(const Table& table);

/// Calls `take` with the value as TOML has it; not with nil.
template <class Take>
void as_toml(const Value& value, const Take& take) {
  if (const auto* b = value.as<bool>()) take(*b);
  else if (const auto* i = value.as<int64_t>()) take(*i);
  else if (const auto* d = value.as<double>()) take(*d);
  else if (const auto* s = value.as<std::string>()) take(*s);
  else if (const auto* list = value.as<List>()) take(array_of(*list));
  else if (const auto* table = value.as<Table>()) take(table_of(*table));
}

toml::array array_of(const List& list) {
  toml::array out;
  for (const Value& one : list) as_toml(one, [&](auto&& x) { out.push_back(std::forward<decltype(x)>(x)); });
  return out;
}

toml::table table_of(const Table& table) {
  toml::table out;
  for (const auto& [name, one] : table) put(out, name, one);
  return out;
}

}  // namespace

void put(toml::table& table, const std::string& key, const Value& value) {
  as_toml(value, [&](auto&& x) { table.insert_or_assign(key, std::forward<decltype(x)>(x)); });
}

namespace {

using Made = std::string (*)(std::string_view);

toml::array list_with_texts(const toml::array& list, Made made);

/// Calls `take` with a copy of the node.
template <class Take>
void as_made(const toml::node& node, Made made, const Take& take) {
  if (const toml::table* table = node.as_table()) take(with_texts(*table, made));
  else if (const toml::array* list = node.as_array()) take(list_with_texts(*list, made));
  else if (const auto* text = node.as_string()) take(made(text->get()));
  else node.visit([&](const auto& value) { take(value); });
}

toml::array list_with_texts(const toml::array& list, Made made) {
  toml::array out;
  for (const toml::node& one : list) as_made(one, made, [&](auto&& x) { out.push_back(std::forward<decltype(x)>(x)); });
  return out;
}

}  // namespace

toml::table with_texts(const toml::table& table, Made made) {
  toml::table out;
  for (const auto& [key, value] : table)
    as_made(value, made, [&, &name = key](auto&& x) { out.insert_or_assign(made(name.str()), std::forward<decltype(x)>(x)); });
  return out;
}

}  // namespace galley
