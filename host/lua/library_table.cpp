// The table library, written on raw access: metamethods are not asked, so that a length or an element is never an answer of the
// script's, and every loop looks at the clock.
#include <algorithm>
#include <utility>

#include "host/lua/libraries.hpp"

namespace galley {
namespace {

lua_Integer length_of(lua_State* L, int table) {
  luaL_checktype(L, table, LUA_TTABLE);
  return static_cast<lua_Integer>(lua_rawlen(L, table));
}

/// insert(t, value) or insert(t, position, value)
int table_insert(lua_State* L) {
  const lua_Integer end = length_of(L, 1) + 1;
  lua_Integer position = end;
  if (lua_gettop(L) == 3) {
    position = luaL_checkinteger(L, 2);
    luaL_argcheck(L, position >= 1 && position <= end, 2, "position out of bounds");
    Ticker ticker(L);
    for (lua_Integer i = end; i > position; --i) {
      ticker.tick();
      lua_rawgeti(L, 1, i - 1);
      lua_rawseti(L, 1, i);
    }
  } else if (lua_gettop(L) != 2) {
    return luaL_error(L, "wrong number of arguments to 'insert'");
  }
  lua_rawseti(L, 1, position);
  return 0;
}

/// remove(t [, position])
int table_remove(lua_State* L) {
  const lua_Integer size = length_of(L, 1);
  lua_Integer position = luaL_optinteger(L, 2, size);
  const bool at_end = position == size || (size == 0 && position == 0);
  luaL_argcheck(L, at_end || (position >= 1 && position <= size + 1), 2, "position out of bounds");
  lua_rawgeti(L, 1, position);
  Ticker ticker(L);
  for (; position < size; ++position) {
    ticker.tick();
    lua_rawgeti(L, 1, position + 1);
    lua_rawseti(L, 1, position);
  }
  lua_pushnil(L);
  lua_rawseti(L, 1, position);
  return 1;
}

/// move(from, first, last, at [, to])
int table_move(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Integer first = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3), at = luaL_checkinteger(L, 4);
  const int to = lua_isnoneornil(L, 5) ? 1 : 5;
  luaL_checktype(L, to, LUA_TTABLE);
  if (last >= first) {
    luaL_argcheck(L, first > 0 || last < LUA_MAXINTEGER + first, 3, "too many elements to move");
    const lua_Integer n = last - first + 1;
    luaL_argcheck(L, at <= LUA_MAXINTEGER - n + 1, 4, "destination wrap around");
    const bool forwards = at > last || at <= first || (to != 1 && !lua_rawequal(L, 1, to));
    Ticker ticker(L);
    for (lua_Integer k = 0; k < n; ++k) {
      ticker.tick();
      const lua_Integer i = forwards ? k : n - 1 - k;
      lua_rawgeti(L, 1, first + i);
      lua_rawseti(L, to, at + i);
    }
  }
  lua_pushvalue(L, to);
  return 1;
}

/// concat(t [, separator [, first [, last]]])
int table_concat(lua_State* L) {
  lua_Integer last = length_of(L, 1);
  size_t size = 0;
  const char* separator = luaL_optlstring(L, 2, "", &size);
  const lua_Integer first = luaL_optinteger(L, 3, 1);
  last = luaL_optinteger(L, 4, last);
  luaL_Buffer buffer;
  luaL_buffinit(L, &buffer);
  Ticker ticker(L);
  for (lua_Integer i = first; i <= last; ++i) {
    ticker.tick();
    lua_rawgeti(L, 1, i);
    if (!lua_isstring(L, -1))
      return luaL_error(L, "element %I of a list to concatenate is a %s", static_cast<LUAI_UACINT>(i), luaL_typename(L, -1));
    luaL_addvalue(&buffer);
    if (i == last) break;  // before ++i can overflow
    luaL_addlstring(&buffer, separator, size);
  }
  luaL_pushresult(&buffer);
  return 1;
}

int table_pack(lua_State* L) {
  const int n = lua_gettop(L);
  lua_createtable(L, n, 1);
  lua_insert(L, 1);
  for (int i = n; i >= 1; --i) lua_rawseti(L, 1, i);
  lua_pushinteger(L, n);
  lua_setfield(L, 1, "n");
  return 1;
}

/// unpack(t [, first [, last]])
int table_unpack(lua_State* L) {
  const lua_Integer size = length_of(L, 1);
  const lua_Integer first = luaL_optinteger(L, 2, 1), last = luaL_optinteger(L, 3, size);
  if (first > last) return 0;
  const lua_Unsigned more = static_cast<lua_Unsigned>(last) - static_cast<lua_Unsigned>(first);
  if (more >= 10000 || !lua_checkstack(L, static_cast<int>(more) + 1)) return luaL_error(L, "too many elements to unpack");
  for (lua_Unsigned i = 0; i <= more; ++i) lua_rawgeti(L, 1, first + static_cast<lua_Integer>(i));
  return static_cast<int>(more) + 1;
}

bool natural_less(lua_State* L, int a, int b) { return lua_compare(L, a, b, LUA_OPLT) != 0; }

/// The script's comparator is the second argument of sort.
bool asked_less(lua_State* L, int a, int b) {
  lua_pushvalue(L, 2);
  lua_pushvalue(L, a);
  lua_pushvalue(L, b);
  lua_call(L, 2, 1);
  const bool answer = lua_toboolean(L, -1) != 0;
  lua_pop(L, 1);
  return answer;
}

/// sort(t [, less])
int table_sort(lua_State* L) {
  const lua_Integer n = length_of(L, 1);
  if (n > (1 << 20)) return luaL_error(L, "a list to sort has too many elements or holes");
  const bool asked = !lua_isnoneornil(L, 2);
  if (asked) luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  sort_elements(L, 1, n, asked ? asked_less : natural_less);
  return 0;
}

}  // namespace

// Merge sort, bottom up, between two tables of its own, so that a comparator that changes the list meanwhile changes nothing here.
void sort_elements(lua_State* L, int table, lua_Integer n, bool (*less)(lua_State* L, int a, int b)) {
  if (n < 2) return;
  luaL_checkstack(L, 10, "sort");
  table = lua_absindex(L, table);
  lua_createtable(L, static_cast<int>(n), 0);
  lua_createtable(L, static_cast<int>(n), 0);
  int from = lua_gettop(L) - 1, to = from + 1;
  Ticker ticker(L);
  for (lua_Integer i = 1; i <= n; ++i) {
    lua_rawgeti(L, table, i);
    lua_rawseti(L, from, i);
  }
  for (lua_Integer width = 1; width < n; width *= 2) {
    for (lua_Integer begin = 1; begin <= n; begin += 2 * width) {
      const lua_Integer middle = std::min(begin + width, n + 1), end = std::min(begin + 2 * width, n + 1);
      lua_Integer left = begin, right = middle;
      for (lua_Integer out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          ticker.tick(64);  // a comparison can be one of long strings
          lua_rawgeti(L, from, left);
          lua_rawgeti(L, from, right);
          take_right = less(L, lua_gettop(L), lua_gettop(L) - 1);
          lua_pop(L, 2);
        }
        ticker.tick();
        lua_rawgeti(L, from, take_right ? right++ : left++);
        lua_rawseti(L, to, out);
      }
    }
    std::swap(from, to);
  }
  for (lua_Integer i = 1; i <= n; ++i) {
    lua_rawgeti(L, from, i);
    lua_rawseti(L, table, i);
  }
  lua_pop(L, 2);
}

void open_table(lua_State* L) {
  const luaL_Reg functions[] = {{"insert", table_insert}, {"remove", table_remove}, {"move", table_move}, {"concat", table_concat},
                                {"pack", table_pack},     {"unpack", table_unpack}, {"sort", table_sort}, {nullptr, nullptr}};
  luaL_newlib(L, functions);
  lua_setglobal(L, "table");
}

}  // namespace galley
