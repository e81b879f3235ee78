// The string library: Lua's own functions where their time is linear in their arguments; find, match, gmatch, gsub, rep and format are
// written here. Not there: dump (bytecode), pack, unpack, packsize.
#include <cstring>
#include <string_view>

#include "host/lua/libraries.hpp"
#include "host/lua/pattern.hpp"

namespace galley {
namespace {

std::string_view text_argument(lua_State* L, int index) {
  size_t size = 0;
  const char* text = luaL_checklstring(L, index, &size);
  return {text, size};
}

/// Where a search begins (from 0) for the argument `init`, which counts from 1, or backwards from the end; beyond the end: size + 1.
size_t start_argument(lua_State* L, int index, size_t size) {
  const lua_Integer init = luaL_optinteger(L, index, 1);
  if (init > 0) return static_cast<lua_Unsigned>(init) - 1 > size ? size + 1 : static_cast<size_t>(init) - 1;
  if (init == 0 || init < -static_cast<lua_Integer>(size)) return 0;
  return static_cast<size_t>(static_cast<lua_Integer>(size) + init);
}

bool has_specials(std::string_view pattern) { return pattern.find_first_of("^$*+?.([%-") != pattern.npos; }

enum class Want { Place, Captures };

int find(lua_State* L, Want want) {
  const std::string_view subject = text_argument(L, 1);
  std::string_view pattern = text_argument(L, 2);
  const size_t start = start_argument(L, 3, subject.size());
  if (start > subject.size()) return luaL_pushfail(L), 1;
  if (want == Want::Place && (lua_toboolean(L, 4) || !has_specials(pattern))) {
    // memmem is linear whatever the texts are; std::string_view::find is not.
    const void* found = memmem(subject.data() + start, subject.size() - start, pattern.data(), pattern.size());
    if (!found) return luaL_pushfail(L), 1;
    const lua_Integer at = static_cast<const char*>(found) - subject.data();
    lua_pushinteger(L, at + 1);
    lua_pushinteger(L, at + static_cast<lua_Integer>(pattern.size()));
    return 2;
  }
  const bool anchored = pattern.starts_with('^');
  if (anchored) pattern.remove_prefix(1);
  PatternMatcher matcher(L, subject, pattern);
  for (const char* s = subject.data() + start; s <= matcher.end(); ++s) {
    matcher.ticker().tick();
    if (const char* end = matcher.match(s)) {
      if (want == Want::Captures) return matcher.push_captures(s, end);
      lua_pushinteger(L, s - matcher.begin() + 1);
      lua_pushinteger(L, end - matcher.begin());
      return 2 + matcher.push_captures(nullptr, nullptr);
    }
    if (anchored) break;
  }
  return luaL_pushfail(L), 1;
}

int string_find(lua_State* L) { return find(L, Want::Place); }
int string_match(lua_State* L) { return find(L, Want::Captures); }

/// Upvalues: the subject, the pattern, where to go on, where the last match ended (−1: there was none).
int next_match(lua_State* L) {
  const std::string_view subject = text_argument(L, lua_upvalueindex(1)), pattern = text_argument(L, lua_upvalueindex(2));
  const lua_Integer from = lua_tointeger(L, lua_upvalueindex(3)), last_end = lua_tointeger(L, lua_upvalueindex(4));
  PatternMatcher matcher(L, subject, pattern);
  for (const char* s = subject.data() + from; s <= matcher.end(); ++s) {
    matcher.ticker().tick();
    const char* end = matcher.match(s);
    if (!end || end - matcher.begin() == last_end) continue;
    for (const int upvalue : {3, 4}) {
      lua_pushinteger(L, end - matcher.begin());
      lua_replace(L, lua_upvalueindex(upvalue));
    }
    return matcher.push_captures(s, end);
  }
  return 0;
}

int string_gmatch(lua_State* L) {
  const std::string_view subject = text_argument(L, 1);
  text_argument(L, 2);
  const size_t start = start_argument(L, 3, subject.size());
  lua_settop(L, 2);
  lua_pushinteger(L, static_cast<lua_Integer>(start));
  lua_pushinteger(L, -1);
  lua_pushcclosure(L, next_match, 4);
  return 1;
}

/// Adds the replacement text (argument 3) of gsub with its %0 … %9.
void add_template(PatternMatcher& matcher, luaL_Buffer* buffer, const char* begin, const char* end) {
  lua_State* L = matcher.state();
  std::string_view text = text_argument(L, 3);
  for (size_t at = text.find('%'); at != text.npos; at = text.find('%')) {
    matcher.ticker().tick();
    luaL_addlstring(buffer, text.data(), at);
    const char c = at + 1 < text.size() ? text[at + 1] : '\0';
    if (c == '%') luaL_addchar(buffer, c);
    else if (c == '0') luaL_addlstring(buffer, begin, static_cast<size_t>(end - begin));
    else if (c >= '1' && c <= '9') {
      matcher.push_capture(c - '1', begin, end);
      luaL_tolstring(L, -1, nullptr);
      lua_remove(L, -2);
      luaL_addvalue(buffer);
    } else {
      luaL_error(L, "invalid use of '%%' in replacement string");
    }
    text.remove_prefix(at + 2);
  }
  luaL_addlstring(buffer, text.data(), text.size());
}

/// Adds what replaces the match; the match itself when a table or function has nothing for it. Whether anything changed.
bool add_replacement(PatternMatcher& matcher, luaL_Buffer* buffer, const char* begin, const char* end) {
  lua_State* L = matcher.state();
  const int type = lua_type(L, 3);
  if (type == LUA_TFUNCTION) {
    lua_pushvalue(L, 3);
    lua_call(L, matcher.push_captures(begin, end), 1);
  } else if (type == LUA_TTABLE) {
    matcher.push_capture(0, begin, end);
    lua_gettable(L, 3);
  } else {
    add_template(matcher, buffer, begin, end);
    return true;
  }
  if (!lua_toboolean(L, -1)) {
    lua_pop(L, 1);
    luaL_addlstring(buffer, begin, static_cast<size_t>(end - begin));
    return false;
  }
  if (!lua_isstring(L, -1)) luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
  luaL_addvalue(buffer);
  return true;
}

/// gsub(text, pattern, replacement [, most])
int string_gsub(lua_State* L) {
  const std::string_view subject = text_argument(L, 1);
  std::string_view pattern = text_argument(L, 2);
  const int type = lua_type(L, 3);
  luaL_argexpected(L, type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION || type == LUA_TTABLE, 3,
                   "string/function/table");
  if (type == LUA_TNUMBER) lua_tostring(L, 3);  // in place, before the buffer is on the stack
  const lua_Integer most = luaL_optinteger(L, 4, static_cast<lua_Integer>(subject.size()) + 1);
  const bool anchored = pattern.starts_with('^');
  if (anchored) pattern.remove_prefix(1);
  PatternMatcher matcher(L, subject, pattern);
  luaL_Buffer buffer;
  luaL_buffinit(L, &buffer);
  const char* s = subject.data();
  const char* last_end = nullptr;
  lua_Integer count = 0;
  bool changed = false;
  while (count < most) {
    matcher.ticker().tick();
    const char* end = matcher.match(s);
    if (end && end != last_end) {
      ++count;
      changed |= add_replacement(matcher, &buffer, s, end);
      s = last_end = end;
    } else if (s < matcher.end()) {
      luaL_addchar(&buffer, *s++);
    } else {
      break;
    }
    if (anchored) break;
  }
  if (changed) {
    luaL_addlstring(&buffer, s, static_cast<size_t>(matcher.end() - s));
    luaL_pushresult(&buffer);
  } else {
    lua_pushvalue(L, 1);
  }
  lua_pushinteger(L, count);
  return 2;
}

/// rep(text, n [, separator])
int string_rep(lua_State* L) {
  const std::string_view text = text_argument(L, 1);
  const lua_Integer n = luaL_checkinteger(L, 2);
  size_t separator_size = 0;
  const char* separator = luaL_optlstring(L, 3, "", &separator_size);
  const size_t each = text.size() + separator_size;
  if (n <= 0 || each == 0) return lua_pushliteral(L, ""), 1;
  if (static_cast<lua_Unsigned>(n) > static_cast<lua_Unsigned>(LUA_MAXINTEGER) / each) return luaL_error(L, "resulting string too large");
  luaL_Buffer buffer;
  // A result beyond LuaLimits::block ends here, in the allocator; so the loop is short.
  char* out = luaL_buffinitsize(L, &buffer, static_cast<size_t>(n) * each - separator_size);
  char* const begin = out;
  for (lua_Integer i = 0; i < n; ++i) {
    std::memcpy(out, text.data(), text.size());
    out += text.size();
    if (i + 1 == n) break;
    std::memcpy(out, separator, separator_size);
    out += separator_size;
  }
  luaL_pushresultsize(&buffer, static_cast<size_t>(out - begin));
  return 1;
}

/// format(template, …): Lua's own does the work, once %s has texts that hold no address. Upvalue: Lua's own.
int string_format(lua_State* L) {
  const std::string_view text = text_argument(L, 1);
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
  Sandbox::of(L).check(L);
  luaL_where(L, 1);  // its own errors would carry no place, since it was called from here
  lua_insert(L, -2);
  lua_concat(L, 2);
  return lua_error(L);
}

}  // namespace

void open_string(lua_State* L) {
  luaL_requiref(L, "string", luaopen_string, 0);  // also gives strings their metatable, with this table as __index
  lua_newtable(L);
  for (const char* name : {"byte", "char", "len", "lower", "reverse", "sub", "upper"}) {
    lua_getfield(L, -2, name);
    lua_setfield(L, -2, name);
  }
  const luaL_Reg own[] = {{"find", string_find}, {"match", string_match}, {"gmatch", string_gmatch},
                          {"gsub", string_gsub}, {"rep", string_rep},     {nullptr, nullptr}};
  luaL_setfuncs(L, own, 0);
  lua_getfield(L, -2, "format");
  lua_pushcclosure(L, string_format, 1);
  lua_setfield(L, -2, "format");
  lua_setglobal(L, "string");
  lua_pop(L, 1);

  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  lua_getglobal(L, "string");
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 2);
}

}  // namespace galley
