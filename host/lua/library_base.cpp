// The basic functions: Lua's own where they are harmless; pcall, xpcall, setmetatable, pairs, next, tostring, load and require written
// here. Not there: print, warn, collectgarbage, dofile, loadfile, and the libraries io, os, debug, package, coroutine and utf8.
//
//   pcall, xpcall     catch errors, but no passed limit. The message handler of xpcall is not called for one: Lua would run it inside the
//                     hook that found it, where hooks are off.
//   setmetatable      takes a copy of the metamethods, so that none can be added afterwards, and refuses __gc, __close and __mode: finalizers
//                     run where hooks are off, and collecting weak tables can take time that is quadratic in their number.
//                     getmetatable gives back the original.
//   pairs, next       walk numbers, then strings, then booleans, each ascending. Lua's own order changes from run to run. A table that has
//                     other keys cannot be walked.
//   load              takes a text and makes no use of bytecode.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "host/base/nearest.hpp"
#include "host/lua/libraries.hpp"

namespace galley {
namespace {

/// Keys of the registry.
const char kCopies = 0;     // metatable as the script knows it → the copy that is in force
const char kOriginals = 0;  // and back

// --- Errors ---------------------------------------------------------------------------------------------------------------------

int base_pcall(lua_State* L) {
  luaL_checkany(L, 1);
  const int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  Sandbox::of(L).check(L);
  lua_pushboolean(L, status == LUA_OK);
  lua_insert(L, 1);
  return lua_gettop(L);
}

int call_handler(lua_State* L) {
  if (Sandbox::of(L).exceeded()) return 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  return 1;
}

int base_xpcall(lua_State* L) {
  luaL_checktype(L, 2, LUA_TFUNCTION);
  const int arguments = lua_gettop(L) - 2;
  lua_pushvalue(L, 2);
  lua_pushcclosure(L, call_handler, 1);
  lua_replace(L, 2);
  lua_pushvalue(L, 1);
  lua_insert(L, 3);
  const int status = lua_pcall(L, arguments, LUA_MULTRET, 2);
  Sandbox::of(L).check(L);
  lua_pushboolean(L, status == LUA_OK);
  lua_replace(L, 2);
  return lua_gettop(L) - 1;
}

// --- Metatables -----------------------------------------------------------------------------------------------------------------

constexpr std::array kMetamethods = {"__index", "__newindex", "__call", "__tostring", "__name",   "__metatable", "__pairs",
                                     "__len",   "__eq",       "__lt",   "__le",       "__concat", "__unm",       "__add",
                                     "__sub",   "__mul",      "__div",  "__mod",      "__pow",    "__idiv",      "__band",
                                     "__bor",   "__bxor",     "__shl",  "__shr",      "__bnot"};

/// Pushes the copy of the metatable at `index` that is in force, up to date.
void push_copy(lua_State* L, int index) {
  for (const char* refused : {"__gc", "__close", "__mode"}) {
    lua_pushstring(L, refused);
    if (lua_rawget(L, index) != LUA_TNIL) luaL_error(L, "a metatable cannot have %s here", refused);
    lua_pop(L, 1);
  }
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kCopies);
  lua_pushvalue(L, index);
  if (lua_rawget(L, -2) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, index);
    lua_pushvalue(L, -2);
    lua_rawset(L, -4);  // copies[original] = copy
    lua_rawgetp(L, LUA_REGISTRYINDEX, &kOriginals);
    lua_pushvalue(L, -2);
    lua_pushvalue(L, index);
    lua_rawset(L, -3);
    lua_pop(L, 1);
  }
  lua_remove(L, -2);
  for (const char* name : kMetamethods) {
    lua_pushstring(L, name);
    lua_pushvalue(L, -1);
    lua_rawget(L, index);
    lua_rawset(L, -3);
  }
}

int base_setmetatable(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_argexpected(L, lua_isnil(L, 2) || lua_istable(L, 2), 2, "nil or table");
  if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) return luaL_error(L, "cannot change a protected metatable");
  if (lua_isnil(L, 2)) lua_pushnil(L);
  else push_copy(L, 2);
  lua_setmetatable(L, 1);
  lua_settop(L, 1);
  return 1;
}

int base_getmetatable(lua_State* L) {
  luaL_checkany(L, 1);
  if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) return 1;
  if (!lua_getmetatable(L, 1)) return luaL_pushfail(L), 1;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kOriginals);
  lua_insert(L, -2);
  lua_rawget(L, -2);
  return 1;
}

// --- Walking tables -------------------------------------------------------------------------------------------------------------

int rank(lua_State* L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TNUMBER: return 0;
    case LUA_TSTRING: return 1;
    case LUA_TBOOLEAN: return 2;
    default: return luaL_error(L, "a table with a %s as key has no order and cannot be walked", luaL_typename(L, index));
  }
}

bool key_less(lua_State* L, int a, int b) {
  const int left = rank(L, a), right = rank(L, b);
  if (left != right) return left < right;
  if (left == 0) return lua_compare(L, a, b, LUA_OPLT) != 0;
  if (left == 2) return lua_toboolean(L, a) < lua_toboolean(L, b);
  size_t m = 0, n = 0;
  const char* x = lua_tolstring(L, a, &m);
  const char* y = lua_tolstring(L, b, &n);
  const int order = std::memcmp(x, y, std::min(m, n));
  return order != 0 ? order < 0 : m < n;
}

/// next(t, key): the smallest key above `key`. It looks at every key, which is for asking whether a table is empty; loops use pairs.
int base_next(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 2);
  const bool first = lua_isnil(L, 2);
  if (!first) rank(L, 2);
  lua_pushnil(L);  // 3: the best so far
  lua_pushnil(L);  // 4: the key that Lua's own walk has come to
  bool found = false;
  Ticker ticker(L);
  while (lua_next(L, 1)) {
    ticker.tick();
    lua_pop(L, 1);
    rank(L, 4);
    if (!first && !key_less(L, 2, 4)) continue;
    if (found && !key_less(L, 4, 3)) continue;
    lua_pushvalue(L, 4);
    lua_replace(L, 3);
    found = true;
  }
  lua_settop(L, 3);
  if (!found) return 1;
  lua_pushvalue(L, 3);
  lua_rawget(L, 1);
  return 2;
}

/// Upvalues: the table, its keys in order, how many have been given.
int next_pair(lua_State* L) {
  lua_Integer given = lua_tointeger(L, lua_upvalueindex(3));
  Ticker ticker(L);
  for (;;) {
    ticker.tick();
    if (lua_rawgeti(L, lua_upvalueindex(2), ++given) == LUA_TNIL) return 1;
    lua_pushvalue(L, -1);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) break;  // else removed meanwhile
    lua_pop(L, 2);
  }
  lua_pushinteger(L, given);
  lua_copy(L, -1, lua_upvalueindex(3));
  lua_pop(L, 1);
  return 2;
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
  lua_newtable(L);
  lua_Integer n = 0;
  Ticker ticker(L);
  for (lua_pushnil(L); lua_next(L, 1);) {
    ticker.tick();
    lua_pop(L, 1);
    rank(L, -1);
    lua_pushvalue(L, -1);
    lua_rawseti(L, 2, ++n);
  }
  sort_elements(L, 2, n, key_less);
  lua_pushvalue(L, 1);
  lua_insert(L, 2);
  lua_pushinteger(L, 0);
  lua_pushcclosure(L, next_pair, 3);
  lua_pushvalue(L, 1);
  lua_pushnil(L);
  return 3;
}

// --- Texts ----------------------------------------------------------------------------------------------------------------------

int base_tostring(lua_State* L) {
  luaL_checkany(L, 1);
  push_text(L, 1);
  return 1;
}

/// load(text [, name [, "t" [, environment]]])
int base_load(lua_State* L) {
  if (lua_type(L, 1) != LUA_TSTRING) return luaL_error(L, "load takes a text here, not a %s", luaL_typename(L, 1));
  size_t size = 0;
  const char* text = lua_tolstring(L, 1, &size);
  const char* name = luaL_optstring(L, 2, "load");
  const char* mode = luaL_optstring(L, 3, "t");
  const size_t limit = Sandbox::of(L).limits().source;
  if (size > limit) return luaL_error(L, "load: the text has %d bytes; the limit is %d", static_cast<int>(size), static_cast<int>(limit));
  if (!std::strchr(mode, 't')) return luaL_error(L, "load: only texts can be loaded (mode \"t\")");
  lua_settop(L, 4);
  const int status = luaL_loadbufferx(L, text, size, (std::string("=") + name).c_str(), "t");
  Sandbox::of(L).check(L);
  if (status != LUA_OK) {
    luaL_pushfail(L);
    lua_insert(L, -2);
    return 2;
  }
  if (!lua_isnil(L, 4)) {
    lua_pushvalue(L, 4);
    lua_setupvalue(L, -2, 1);
  }
  return 1;
}

int base_require(lua_State* L) {
  size_t size = 0;
  const char* name = luaL_checklstring(L, 1, &size);
  Sandbox::of(L).require(L, std::string(name, size));
  return 1;
}

// --- Globals --------------------------------------------------------------------------------------------------------------------

/// __index of the globals: a name that nobody has defined.
int undefined_global(lua_State* L) {
  if (lua_type(L, 2) != LUA_TSTRING) return 0;
  size_t size = 0;
  const char* text = lua_tolstring(L, 2, &size);
  const std::string name(text, size);
  for (const char* missing :
       {"print", "warn", "io", "os", "debug", "package", "coroutine", "utf8", "collectgarbage", "dofile", "loadfile"}) {
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

/// Removes every field of the table on top whose name is not in the list.
void keep_only(lua_State* L, std::initializer_list<const char*> names) {
  for (lua_pushnil(L); lua_next(L, -2);) {
    lua_pop(L, 1);
    const char* name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    if (std::any_of(names.begin(), names.end(), [&](const char* kept) { return std::strcmp(name, kept) == 0; })) continue;
    lua_pushvalue(L, -1);
    lua_pushnil(L);
    lua_rawset(L, -4);
  }
}

}  // namespace

void push_text(lua_State* L, int index) {
  index = lua_absindex(L, index);
  const int type = lua_type(L, index);
  const bool plain = type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER || type == LUA_TSTRING;
  if (plain || luaL_getmetafield(L, index, "__tostring") != LUA_TNIL) {
    if (!plain) lua_pop(L, 1);
    luaL_tolstring(L, index, nullptr);
    return;
  }
  if (luaL_getmetafield(L, index, "__name") == LUA_TSTRING) return;
  lua_pushstring(L, luaL_typename(L, index));
}

void open_base(lua_State* L) {
  for (const char* key : {&kCopies, &kOriginals}) {
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, key);
  }
  luaL_requiref(L, "_G", luaopen_base, 0);
  keep_only(L, {"_G", "assert", "error", "ipairs", "rawequal", "rawget", "rawlen", "rawset", "select", "tonumber", "type"});
  const luaL_Reg own[] = {
      {"pcall", base_pcall},     {"xpcall", base_xpcall}, {"setmetatable", base_setmetatable}, {"getmetatable", base_getmetatable},
      {"next", base_next},       {"pairs", base_pairs},   {"tostring", base_tostring},         {"load", base_load},
      {"require", base_require}, {nullptr, nullptr}};
  luaL_setfuncs(L, own, 0);

  luaL_requiref(L, "math", luaopen_math, 0);
  keep_only(L, {"abs",        "acos", "asin",       "atan", "ceil", "cos", "deg", "exp",  "floor", "fmod",      "huge", "log", "max",
                "maxinteger", "min",  "mininteger", "modf", "pi",   "rad", "sin", "sqrt", "tan",   "tointeger", "type", "ult"});
  lua_setfield(L, -2, "math");

  lua_newtable(L);
  lua_pushcfunction(L, undefined_global);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}

int open_libraries(lua_State* L) {
  open_base(L);
  open_string(L);
  open_table(L);
  return 0;
}

}  // namespace galley
