// What a script finds: Lua's own basic functions, string, table and math, as far as they are named here. Not there are io, os, debug,
// package, coroutine, utf8, print, warn, dofile, loadfile, load, collectgarbage, xpcall, string.dump and math.random.
//
// Written here is only what would break a promise of sandbox.hpp if it were Lua's own:
//
//   pairs, next       walk numbers, then strings, then booleans, each ascending, because Lua's own order changes from run to run. A table
//                     that has other keys cannot be walked.
//   tostring, format  give a table or function without __tostring the name of its type, because its address changes from run to run.
//   setmetatable      refuses __gc: Lua runs finalizers with hooks off, so that one which does not end would pass the limit of time.
//   require           finds modules where the sandbox may read.
//   find, match, gmatch, gsub  look at the clock (patterns.hpp), as does the order by which table.sort compares.
//   rep, move, insert, remove, sort  refuse what would keep them busy without end: a billion empty texts, a table that lies about its size.
//
// xpcall is not there for the reason that __gc is not: Lua calls the handler of a limit's error inside the hook that raised it. load is
// not there because the parser looks at no clock, and nothing needs it. What table.sort makes of elements that compare equal is open, as
// in Lua: an order that is to be the same in every run tells all elements apart.
#include "host/lua/library/libraries.hpp"

#include <algorithm>
#include <compare>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/base/nearest.hpp"
#include "host/lua/library/patterns.hpp"
#include "host/lua/library/raise.hpp"
#include "host/lua/library/script_host.hpp"

namespace galley {
namespace {

std::string_view text_at(lua_State* L, int index) {
  size_t size = 0;
  const char* text = luaL_checklstring(L, index, &size);
  return {text, size};
}

// --- Walking tables -------------------------------------------------------------------------------------------------------------

/// A key of a table. A long double holds every integer and every double of Lua exactly; the text belongs to the table.
struct Key {
  enum Kind { Number, Text, Boolean } kind;
  long double number = 0;
  std::string_view text = {};
  friend auto operator<=>(const Key&, const Key&) = default;
};

Key key_at(lua_State* L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TNUMBER:
      return {Key::Number, lua_isinteger(L, index) ? static_cast<long double>(lua_tointeger(L, index)) : lua_tonumber(L, index)};
    case LUA_TSTRING: return {Key::Text, 0, text_at(L, index)};
    case LUA_TBOOLEAN: return {Key::Boolean, static_cast<long double>(lua_toboolean(L, index))};
    default: luaL_error(L, "a table with a %s as key has no order and cannot be walked", luaL_typename(L, index)); return {};
  }
}

static_assert(std::numeric_limits<long double>::digits >= std::numeric_limits<lua_Unsigned>::digits);

bool is_less(const Key& a, const Key& b) { return a < b; }

/// next(t, key): the smallest key above `key`. It looks at every key, which is for asking whether a table is empty; loops use pairs.
int base_next(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 2);
  const bool first = lua_isnil(L, 2);
  const Key above = first ? Key{} : key_at(L, 2);
  Key least = {};
  lua_pushnil(L);  // 3: the key of `least`, nil when there is none
  for (lua_pushnil(L); lua_next(L, 1);) {
    lua_pop(L, 1);
    const Key key = key_at(L, 4);
    if ((!first && !is_less(above, key)) || (!lua_isnil(L, 3) && !is_less(key, least))) continue;
    least = key;
    lua_copy(L, 4, 3);
  }
  lua_settop(L, 3);
  if (lua_isnil(L, 3)) return 1;
  lua_pushvalue(L, 3);
  lua_rawget(L, 1);
  return 2;
}

/// Upvalues: the table, its keys in order, how many have been given.
int next_pair(lua_State* L) {
  for (lua_Integer given = lua_tointeger(L, lua_upvalueindex(3)) + 1;; ++given) {
    if (lua_rawgeti(L, lua_upvalueindex(2), given) == LUA_TNIL) return 1;
    lua_pushvalue(L, -1);
    if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TNIL) {  // removed meanwhile
      lua_pop(L, 2);
      continue;
    }
    lua_pushinteger(L, given);
    lua_replace(L, lua_upvalueindex(3));
    return 2;
  }
}

int base_pairs(lua_State* L) {
  luaL_checkany(L, 1);
  if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
    lua_pushvalue(L, 1);
    lua_call(L, 1, 3);
    return 3;
  }
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  std::vector<std::pair<Key, lua_Integer>> keys;
  lua_newtable(L);  // 2: the keys as Lua walks them
  for (lua_pushnil(L); lua_next(L, 1);) {
    lua_pop(L, 1);
    keys.emplace_back(key_at(L, -1), static_cast<lua_Integer>(keys.size()) + 1);
    lua_pushvalue(L, -1);
    lua_rawseti(L, 2, keys.back().second);
  }
  std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return is_less(a.first, b.first); });
  lua_pushvalue(L, 1);
  lua_createtable(L, static_cast<int>(keys.size()), 0);  // the keys in order
  for (size_t i = 0; i < keys.size(); ++i) {
    lua_rawgeti(L, 2, keys[i].second);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  lua_pushinteger(L, 0);
  lua_pushcclosure(L, next_pair, 3);
  lua_pushvalue(L, 1);
  lua_pushnil(L);
  return 3;
}

// --- Texts ----------------------------------------------------------------------------------------------------------------------

/// Pushes the text of any value.
void push_text(lua_State* L, int index) {
  const int type = lua_type(L, index);
  const bool plain = type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER || type == LUA_TSTRING;
  if (plain || luaL_getmetafield(L, index, "__tostring") != LUA_TNIL) {
    if (!plain) lua_pop(L, 1);
    luaL_tolstring(L, index, nullptr);
  } else if (luaL_getmetafield(L, index, "__name") != LUA_TSTRING) {
    lua_pushstring(L, luaL_typename(L, index));
  }
}

int base_tostring(lua_State* L) {
  luaL_checkany(L, 1);
  push_text(L, 1);
  return 1;
}

/// format(template, …): Lua's own does the work, once %s has texts that hold no address. Upvalue: Lua's own.
int string_format(lua_State* L) {
  const std::string_view text = text_at(L, 1);
  int argument = 1;
  for (size_t at = text.find('%'); at < text.size(); at = text.find('%', at + 1)) {
    at = text.find_first_not_of("-+ #0123456789.", at + 1);
    if (at == text.npos) break;  // Lua's own explains
    if (text[at] == '%') continue;
    if (++argument > lua_gettop(L)) break;
    if (text[at] == 'p') return luaL_error(L, "format: %%p is not available here");
    if (text[at] != 's') continue;
    push_text(L, argument);
    lua_replace(L, argument);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  if (lua_pcall(L, lua_gettop(L) - 1, 1, 0) == LUA_OK) return 1;
  ScriptHost::of(L).check(L);
  luaL_where(L, 1);  // its own errors would carry no place, since it was called from here
  lua_insert(L, -2);
  lua_concat(L, 2);
  return lua_error(L);
}

// --- Loops of Lua's own functions that would not look at the clock ---------------------------------------------------------------------
//
// Upvalue of each: Lua's own. It runs in the same call, so that its errors name place and function as ever; it has no upvalues itself.

int run_original(lua_State* L) { return lua_tocfunction(L, lua_upvalueindex(1))(L); }

/// Of nothing, as often as one likes, without a memory that would end it.
int string_rep(lua_State* L) {
  const bool empty = text_at(L, 1).empty() && (lua_isnoneornil(L, 3) || text_at(L, 3).empty());
  luaL_checkinteger(L, 2);
  if (!empty) return run_original(L);
  lua_pushliteral(L, "");
  return 1;
}

int table_move(lua_State* L) {
  constexpr lua_Integer kMost = 1 << 20;  // more than a table of LuaLimits::block bytes holds
  const lua_Integer first = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3);
  if (last >= first && (first <= 0 ? last >= first + kMost : last - first >= kMost))
    return luaL_error(L, "table.move moves at most %I elements", static_cast<LUAI_UACINT>(kMost));
  return run_original(L);
}

/// insert and remove: they trust the size that a table claims, and would shift that many elements.
int table_of_own_size(lua_State* L) {
  if (luaL_getmetafield(L, 1, "__len") != LUA_TNIL) return luaL_error(L, "a table with __len cannot be changed by functions of table here");
  return run_original(L);
}

int is_less_than(lua_State* L) {
  lua_pushboolean(L, lua_compare(L, 1, 2, LUA_OPLT));
  return 1;
}

/// Comparing by a function makes a call of each comparison, and calls look at the clock: two long texts take a while.
int table_sort(lua_State* L) {
  if (lua_isnoneornil(L, 2)) {
    lua_settop(L, 1);
    lua_pushcfunction(L, is_less_than);
  }
  return table_of_own_size(L);
}

/// Replaces functions of the table on top of the stack.
void wrap(lua_State* L, std::initializer_list<luaL_Reg> functions) {
  for (const luaL_Reg& function : functions) {
    lua_getfield(L, -1, function.name);
    lua_pushcclosure(L, function.func, 1);
    lua_setfield(L, -2, function.name);
  }
}

// --- The rest -------------------------------------------------------------------------------------------------------------------

int base_setmetatable(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_argexpected(L, lua_isnil(L, 2) || lua_istable(L, 2), 2, "nil or table");
  if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) return luaL_error(L, "cannot change a protected metatable");
  lua_settop(L, 2);
  if (lua_istable(L, 2)) {
    lua_pushliteral(L, "__gc");
    if (lua_rawget(L, 2) != LUA_TNIL) return luaL_error(L, "a metatable cannot have __gc here");
    lua_pop(L, 1);
  }
  lua_setmetatable(L, 1);  // Lua looks for __gc now and never again
  return 1;
}

int base_require(lua_State* L) {
  ScriptHost::of(L).require(L, std::string(text_at(L, 1)));
  return 1;
}

/// __index of the globals: a name that nobody has defined.
int undefined_global(lua_State* L) {
  if (lua_type(L, 2) != LUA_TSTRING) return 0;
  const std::string name(text_at(L, 2));
  for (const char* missing :
       {"print", "warn", "io", "os", "debug", "package", "coroutine", "utf8", "collectgarbage", "dofile", "load", "loadfile", "xpcall"}) {
    if (name == missing)
      raise(L, recipe_error("'" + name + "' is not available here", "a script sees its own files and what it is given, nothing else"));
  }
  std::vector<std::string> known;
  lua_settop(L, 1);
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING && lua_rawlen(L, -2) < 100 && known.size() < 1000) known.emplace_back(lua_tostring(L, -2));
  }
  std::sort(known.begin(), known.end());
  const std::string near = name.size() < 100 ? did_you_mean(name, known) : std::string();
  raise(L, recipe_error("'" + name.substr(0, 100) + "' is not defined" + (near.empty() ? "" : "; " + near)));
}

void remove(lua_State* L, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    lua_pushnil(L);
    lua_setfield(L, -2, name);
  }
}

/// The table `string` is a copy: messages of Lua's own format name it by the original.
void open_string(lua_State* L) {
  lua_newtable(L);
  luaL_requiref(L, LUA_STRLIBNAME, luaopen_string, 0);  // also gives strings their metatable
  open_patterns(L);
  wrap(L, {{"rep", string_rep}});
  for (lua_pushnil(L); lua_next(L, -2);) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, -5);  // copy[key] = value; the key stays for lua_next
  }
  lua_pop(L, 1);
  wrap(L, {{"format", string_format}});
  remove(L, {"dump"});
  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  lua_pushvalue(L, -3);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 2);
  lua_setglobal(L, "string");
}

}  // namespace

int open_libraries(lua_State* L) {
  luaL_requiref(L, LUA_TABLIBNAME, luaopen_table, 1);
  wrap(L, {{"move", table_move}, {"insert", table_of_own_size}, {"remove", table_of_own_size}, {"sort", table_sort}});
  luaL_requiref(L, LUA_MATHLIBNAME, luaopen_math, 1);
  remove(L, {"random", "randomseed"});
  open_string(L);

  luaL_requiref(L, LUA_GNAME, luaopen_base, 0);
  remove(L, {"print", "warn", "collectgarbage", "dofile", "load", "loadfile", "xpcall", "_VERSION"});
  const luaL_Reg own[] = {{"pairs", base_pairs},     {"next", base_next}, {"tostring", base_tostring}, {"setmetatable", base_setmetatable},
                          {"require", base_require}, {nullptr, nullptr}};
  luaL_setfuncs(L, own, 0);
  lua_newtable(L);
  lua_pushcfunction(L, undefined_global);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  return 0;
}

}  // namespace galley
