#include "host/lua/convert.hpp"

#include <cmath>
#include <map>

#include "host/lua/sandbox.hpp"

namespace galley {
namespace {

constexpr size_t kBytesAValue = 64;
constexpr int kLevels = 32;

}  // namespace

std::string Converter::read_text(int index) {
  size_t size = 0;
  const char* text = lua_tolstring(L_, index, &size);
  bytes_ += size;
  if (bytes_ > most_bytes_) raise(L_, recipe_error("too much text for a description"));
  return {text, size};
}

Value Converter::read(int index, const std::string& name, int level) {
  if (++values_ > most_bytes_ / kBytesAValue) raise(L_, recipe_error("too many values for a description"));
  switch (lua_type(L_, index)) {
    case LUA_TNIL: return {};
    case LUA_TBOOLEAN: return Value(lua_toboolean(L_, index) != 0);
    case LUA_TSTRING: return Value(read_text(index));
    case LUA_TTABLE: return read_table(lua_absindex(L_, index), name, level);
    case LUA_TNUMBER: {
      if (lua_isinteger(L_, index)) return Value(static_cast<int64_t>(lua_tointeger(L_, index)));
      const double number = lua_tonumber(L_, index);
      if (!std::isfinite(number)) raise(L_, recipe_error("'" + name + "' is not a finite number"));
      return Value(number);
    }
    default:
      if (foreign_) return foreign_(L_, index, name);
      raise(L_, recipe_error("'" + name + "' is a " + luaL_typename(L_, index) + " and no plain data"));
  }
}

Value Converter::read_table(int index, const std::string& name, int level) {
  const std::string it = name.empty() ? "the table" : "'" + name + "'";
  if (level == kLevels) raise(L_, recipe_error("'" + name.substr(0, 100) + "…' has more than 32 levels, or contains itself"));
  luaL_checkstack(L_, 4, "too many levels");
  // Keys come in an order that changes from run to run; messages must not.
  std::map<int64_t, Value> list;
  Table table;
  for (lua_pushnil(L_); lua_next(L_, index); lua_pop(L_, 1)) {
    if (lua_isinteger(L_, -2)) {
      const int64_t key = lua_tointeger(L_, -2);
      list.emplace(key, read(-1, name + "[" + std::to_string(key) + "]", level + 1));
    } else if (lua_type(L_, -2) == LUA_TSTRING) {
      std::string key = read_text(-2);
      Value value = read(-1, name.empty() ? key : name + "." + key, level + 1);
      table.emplace(std::move(key), std::move(value));
    } else {
      raise(L_, recipe_error(it + " has a " + luaL_typename(L_, -2) + " as a key"));
    }
  }
  if (list.empty() && !table.empty()) return Value(std::move(table));
  if (!table.empty()) raise(L_, recipe_error(it + " mixes a list with named entries such as '" + table.begin()->first + "'"));
  List values;
  for (auto& [key, value] : list) {
    if (key != static_cast<int64_t>(values.size()) + 1) {
      raise(L_, recipe_error(it + " is a list with a hole: it has an element " + std::to_string(key) + " and no element " +
                             std::to_string(values.size() + 1)));
    }
    values.push_back(std::move(value));
  }
  return Value(std::move(values));
}

Value to_value(lua_State* L, int index) { return Converter(L).read(index, "value"); }

void push_value(lua_State* L, const Value& value, Nils nils) {
  luaL_checkstack(L, 4, "too many levels");
  if (value.is_nil() && nils == Nils::Kept) lua_pushlightuserdata(L, nullptr);
  else if (value.is_nil()) lua_pushnil(L);
  else if (const auto* boolean = value.as<bool>()) lua_pushboolean(L, *boolean);
  else if (const auto* integer = value.as<int64_t>()) lua_pushinteger(L, *integer);
  else if (const auto* number = value.as<double>()) lua_pushnumber(L, *number);
  else if (const auto* text = value.as<std::string>()) lua_pushlstring(L, text->data(), text->size());
  else if (const auto* list = value.as<List>()) {
    lua_createtable(L, static_cast<int>(list->size()), 0);
    for (size_t i = 0; i < list->size(); ++i) {
      push_value(L, (*list)[i], nils);
      lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
    }
  } else if (const auto* table = value.as<Table>()) {
    lua_createtable(L, 0, static_cast<int>(table->size()));
    for (const auto& [key, entry] : *table) {
      lua_pushlstring(L, key.data(), key.size());
      push_value(L, entry, nils);
      lua_rawset(L, -3);
    }
  } else {
    luaL_error(L, "a %s cannot be given to a script", value.type_name());
  }
}

}  // namespace galley
