#include "host/lua/library/patterns.hpp"

#include <array>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "host/lua/library/script_host.hpp"

namespace galley {
namespace {

constexpr int kCaptures = 32;              // Lua's own limits
constexpr int kDepth = 200;                // of nested calls of match()
constexpr ptrdiff_t kBetweenLooks = 4096;  // steps of some nanoseconds
constexpr char kEscape = '%';

unsigned char byte_of(char c) { return static_cast<unsigned char>(c); }

std::string_view subject_at(lua_State* L, int index) {
  size_t size = 0;
  const char* text = luaL_checklstring(L, index, &size);
  return {text, size};
}

/// One pattern over one text, both Lua's: after their last bytes are zeros, which a matcher may look at.
class Matcher {
 public:
  Matcher(lua_State* L, std::string_view text, std::string_view pattern)
      : L_(L), begin_(text.data()), end_(begin_ + text.size()), pattern_end_(pattern.data() + pattern.size()) {}

  /// Where a match that begins at `s` ends; null if there is none.
  const char* at(const char* s, const char* pattern) {
    level_ = 0;
    depth_ = 0;
    return match(s, pattern);
  }
  const char* end() const { return end_; }

  /// Pushes the captures of a match; the whole match if there are none and `whole` says so.
  int push_captures(const char* s, const char* e, bool whole) {
    const int count = level_ == 0 && whole ? 1 : level_;
    luaL_checkstack(L_, count, "too many captures");
    for (int i = 0; i < count; ++i) push_capture(i, s, e);
    return count;
  }
  void push_capture(int index, const char* s, const char* e) {
    if (index >= level_) {
      if (index != 0) luaL_error(L_, "invalid capture index %%%d", index + 1);
      lua_pushlstring(L_, s, static_cast<size_t>(e - s));
      return;
    }
    const Capture& capture = captures_[static_cast<size_t>(index)];
    if (capture.length == kOpen) luaL_error(L_, "unfinished capture");
    if (capture.length == kPosition) lua_pushinteger(L_, capture.begin - begin_ + 1);
    else lua_pushlstring(L_, capture.begin, static_cast<size_t>(capture.length));
  }

 private:
  static constexpr ptrdiff_t kOpen = -1, kPosition = -2;  // lengths
  struct Capture {
    const char* begin;
    ptrdiff_t length;
  };

  void work(ptrdiff_t steps) {
    left_ -= steps;
    if (left_ > 0) return;
    left_ = kBetweenLooks;
    ScriptHost::of(L_).check(L_);
  }

  static bool is_class(unsigned char c, unsigned char name) {
    bool is = false;
    switch (std::tolower(name)) {
      case 'a': is = std::isalpha(c) != 0; break;
      case 'c': is = std::iscntrl(c) != 0; break;
      case 'd': is = std::isdigit(c) != 0; break;
      case 'g': is = std::isgraph(c) != 0; break;
      case 'l': is = std::islower(c) != 0; break;
      case 'p': is = std::ispunct(c) != 0; break;
      case 's': is = std::isspace(c) != 0; break;
      case 'u': is = std::isupper(c) != 0; break;
      case 'w': is = std::isalnum(c) != 0; break;
      case 'x': is = std::isxdigit(c) != 0; break;
      case 'z': is = c == 0; break;  // which the manual does not name any more
      default: return name == c;
    }
    return std::isupper(name) ? !is : is;
  }

  /// Of the set from '[' at `p` to ']' at `last`.
  static bool in_set(unsigned char c, const char* p, const char* last) {
    bool found = true;
    if (p[1] == '^') {
      found = false;
      ++p;
    }
    while (++p < last) {
      if (*p == kEscape) {
        ++p;
        if (is_class(c, byte_of(*p))) return found;
      } else if (p[1] == '-' && p + 2 < last) {
        p += 2;
        if (byte_of(p[-2]) <= c && c <= byte_of(*p)) return found;
      } else if (byte_of(*p) == c) {
        return found;
      }
    }
    return !found;
  }

  /// After the single character class that begins at `p`.
  const char* class_end(const char* p) const {
    const char first = *p++;
    if (first == kEscape) {
      if (p == pattern_end_) luaL_error(L_, "malformed pattern (ends with '%%')");
      return p + 1;
    }
    if (first != '[') return p;
    if (*p == '^') ++p;
    do {  // the first ']' is a member of the set
      if (p == pattern_end_) luaL_error(L_, "malformed pattern (missing ']')");
      if (*p++ == kEscape && p < pattern_end_) ++p;
    } while (*p != ']');
    return p + 1;
  }

  bool is_single(const char* s, const char* p, const char* after) {
    if (s >= end_) return false;
    switch (*p) {
      case '.': return true;
      case kEscape: return is_class(byte_of(*s), byte_of(p[1]));
      case '[': work(after - p); return in_set(byte_of(*s), p, after - 1);
      default: return *p == *s;
    }
  }

  const char* match(const char* s, const char* p) {
    if (++depth_ > kDepth) luaL_error(L_, "pattern too complex");
    s = match_here(s, p);
    --depth_;
    return s;
  }

  const char* match_here(const char* s, const char* p) {
    while (p != pattern_end_) {
      work(1);
      switch (*p) {
        case '(': return p[1] == ')' ? open(s, p + 2, kPosition) : open(s, p + 1, kOpen);
        case ')': return close(s, p + 1);
        case '$':
          if (p + 1 == pattern_end_) return s == end_ ? s : nullptr;
          break;
        case kEscape:
          if (p[1] == 'b') {
            s = balance(s, p + 2);
            if (!s) return nullptr;
            p += 4;
            continue;
          }
          if (p[1] == 'f') {
            p += 2;
            if (*p != '[') luaL_error(L_, "missing '[' after '%%f' in pattern");
            const char* const after = class_end(p);
            work(after - p);
            const unsigned char before = s == begin_ ? 0 : byte_of(s[-1]), here = s == end_ ? 0 : byte_of(*s);
            if (in_set(before, p, after - 1) || !in_set(here, p, after - 1)) return nullptr;
            p = after;
            continue;
          }
          if (std::isdigit(byte_of(p[1]))) {
            s = again(s, p[1]);
            if (!s) return nullptr;
            p += 2;
            continue;
          }
          break;
        default: break;
      }
      const char* const after = class_end(p);
      work(after - p);
      const bool one = is_single(s, p, after);
      switch (*after) {
        case '+': return one ? expand(s + 1, p, after) : nullptr;
        case '*':
          if (one) return expand(s, p, after);
          p = after + 1;
          continue;
        case '-':
          if (one) return expand_least(s, p, after);
          p = after + 1;
          continue;
        case '?':
          if (one)
            if (const char* end = match(s + 1, after + 1)) return end;
          p = after + 1;
          continue;
        default:
          if (!one) return nullptr;
          ++s;
          p = after;
      }
    }
    return s;
  }

  const char* expand(const char* s, const char* p, const char* after) {
    ptrdiff_t most = 0;
    while (is_single(s + most, p, after)) ++most;
    work(most);
    for (; most >= 0; --most) {
      work(1);
      if (const char* end = match(s + most, after + 1)) return end;
    }
    return nullptr;
  }

  const char* expand_least(const char* s, const char* p, const char* after) {
    for (;; ++s) {
      work(1);
      if (const char* end = match(s, after + 1)) return end;
      if (!is_single(s, p, after)) return nullptr;
    }
  }

  const char* balance(const char* s, const char* p) {
    if (p >= pattern_end_ - 1) luaL_error(L_, "malformed pattern (missing arguments to '%%b')");
    if (*s != *p) return nullptr;
    const char* const first = s;
    int open = 1;
    while (++s < end_) {
      if (*s == p[1]) {
        if (--open == 0) break;
      } else if (*s == *p) {
        ++open;
      }
    }
    work(s - first);
    return s < end_ ? s + 1 : nullptr;
  }

  const char* open(const char* s, const char* p, ptrdiff_t length) {
    if (level_ >= kCaptures) luaL_error(L_, "too many captures");
    captures_[static_cast<size_t>(level_++)] = {s, length};
    const char* const end = match(s, p);
    if (!end) --level_;
    return end;
  }

  const char* close(const char* s, const char* p) {
    int level = level_ - 1;
    while (level >= 0 && captures_[static_cast<size_t>(level)].length != kOpen) --level;
    if (level < 0) luaL_error(L_, "invalid pattern capture");
    Capture& capture = captures_[static_cast<size_t>(level)];
    capture.length = s - capture.begin;
    const char* const end = match(s, p);
    if (!end) capture.length = kOpen;
    return end;
  }

  /// Matches the text of a capture once more.
  const char* again(const char* s, char digit) {
    const int index = digit - '1';
    if (index < 0 || index >= level_ || captures_[static_cast<size_t>(index)].length == kOpen)
      luaL_error(L_, "invalid capture index %%%d", index + 1);
    const Capture& capture = captures_[static_cast<size_t>(index)];
    const ptrdiff_t length = capture.length;
    if (length == kPosition || end_ - s < length) return nullptr;
    work(1 + length / 16);
    return std::memcmp(capture.begin, s, static_cast<size_t>(length)) == 0 ? s + length : nullptr;
  }

  lua_State* L_;
  const char *begin_, *end_, *pattern_end_;
  std::array<Capture, kCaptures> captures_ = {};
  int level_ = 0, depth_ = 0;
  ptrdiff_t left_ = kBetweenLooks;
};

/// The position that an optional argument names, from 0; after the text's end: one more than its size.
size_t start_at(lua_State* L, int argument, size_t size) {
  const lua_Integer given = luaL_optinteger(L, argument, 1), last = static_cast<lua_Integer>(size);
  if (given > last) return given == last + 1 ? size : size + 1;
  if (given > 0) return static_cast<size_t>(given - 1);
  return given == 0 || given < -last ? 0 : static_cast<size_t>(last + given);
}

enum class Wanted { Positions, Texts };

int first_match(lua_State* L, Wanted wanted) {
  const std::string_view text = subject_at(L, 1), pattern = subject_at(L, 2);
  const size_t start = start_at(L, 3, text.size());
  const auto none = [L] {
    luaL_pushfail(L);
    return 1;
  };
  const auto found = [L, &text](const char* s, const char* e) {
    lua_pushinteger(L, s - text.data() + 1);
    lua_pushinteger(L, e - text.data());
    return 2;
  };
  if (start > text.size()) return none();
  const bool plain = lua_toboolean(L, 4) || pattern.find_first_of("^$*+?.([%-") == pattern.npos;
  if (wanted == Wanted::Positions && plain) {
    if (pattern.empty()) return found(text.data() + start, text.data() + start);
    // Linear, whatever the texts are.
    const void* const at = ::memmem(text.data() + start, text.size() - start, pattern.data(), pattern.size());
    return at ? found(static_cast<const char*>(at), static_cast<const char*>(at) + pattern.size()) : none();
  }
  const bool anchored = pattern.starts_with('^');
  const char* const p = pattern.data() + (anchored ? 1 : 0);
  Matcher matcher(L, text, pattern);
  for (const char* s = text.data() + start; s <= matcher.end(); ++s) {
    if (const char* e = matcher.at(s, p)) {
      if (wanted == Wanted::Texts) return matcher.push_captures(s, e, true);
      return found(s, e) + matcher.push_captures(s, e, false);
    }
    if (anchored) break;
  }
  return none();
}

int string_find(lua_State* L) { return first_match(L, Wanted::Positions); }
int string_match(lua_State* L) { return first_match(L, Wanted::Texts); }

/// Upvalues: text, pattern, where to go on, where the last match ended (-1: there was none).
int next_match(lua_State* L) {
  const std::string_view text = subject_at(L, lua_upvalueindex(1)), pattern = subject_at(L, lua_upvalueindex(2));
  const lua_Integer last = lua_tointeger(L, lua_upvalueindex(4));
  Matcher matcher(L, text, pattern);
  for (const char* s = text.data() + lua_tointeger(L, lua_upvalueindex(3)); s <= matcher.end(); ++s) {
    const char* const e = matcher.at(s, pattern.data());
    if (!e || e - text.data() == last) continue;
    for (const int upvalue : {3, 4}) {
      lua_pushinteger(L, e - text.data());
      lua_replace(L, lua_upvalueindex(upvalue));
    }
    return matcher.push_captures(s, e, true);
  }
  return 0;
}

int string_gmatch(lua_State* L) {
  const std::string_view text = subject_at(L, 1);
  subject_at(L, 2);
  const size_t start = start_at(L, 3, text.size());
  lua_settop(L, 2);
  lua_pushinteger(L, static_cast<lua_Integer>(start));
  lua_pushinteger(L, -1);
  lua_pushcclosure(L, next_match, 4);
  return 1;
}

/// Appends the replacement text, the third argument, with its % escapes.
void add_text(lua_State* L, luaL_Buffer& out, Matcher& matcher, const char* s, const char* e) {
  size_t size = 0;
  const char* text = lua_tolstring(L, 3, &size);
  while (const auto* p = static_cast<const char*>(std::memchr(text, kEscape, size))) {
    luaL_addlstring(&out, text, static_cast<size_t>(p - text));
    ++p;
    if (*p == kEscape) {
      luaL_addchar(&out, kEscape);
    } else if (*p == '0') {
      luaL_addlstring(&out, s, static_cast<size_t>(e - s));
    } else if (std::isdigit(byte_of(*p))) {
      matcher.push_capture(*p - '1', s, e);
      luaL_tolstring(L, -1, nullptr);  // a position is a number
      lua_remove(L, -2);
      luaL_addvalue(&out);
    } else {
      luaL_error(L, "invalid use of '%c' in replacement string", kEscape);
    }
    size -= static_cast<size_t>(p + 1 - text);
    text = p + 1;
  }
  luaL_addlstring(&out, text, size);
}

/// Appends what replaces a match. Whether it differs from the match in kind: a false value keeps it.
bool add_replacement(lua_State* L, luaL_Buffer& out, Matcher& matcher, const char* s, const char* e) {
  switch (lua_type(L, 3)) {
    case LUA_TFUNCTION: {
      lua_pushvalue(L, 3);
      lua_call(L, matcher.push_captures(s, e, true), 1);
      break;
    }
    case LUA_TTABLE:
      matcher.push_capture(0, s, e);
      lua_gettable(L, 3);
      break;
    default: add_text(L, out, matcher, s, e); return true;
  }
  if (!lua_toboolean(L, -1)) {
    lua_pop(L, 1);
    luaL_addlstring(&out, s, static_cast<size_t>(e - s));
    return false;
  }
  if (!lua_isstring(L, -1)) luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
  luaL_addvalue(&out);
  return true;
}

int string_gsub(lua_State* L) {
  const std::string_view text = subject_at(L, 1), pattern = subject_at(L, 2);
  const int type = lua_type(L, 3);
  const lua_Integer most = luaL_optinteger(L, 4, static_cast<lua_Integer>(text.size()) + 1);
  luaL_argexpected(L, type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION || type == LUA_TTABLE, 3,
                   "string/function/table");
  const bool anchored = pattern.starts_with('^');
  const char* const p = pattern.data() + (anchored ? 1 : 0);
  const char *s = text.data(), *last = nullptr;
  Matcher matcher(L, text, pattern);
  lua_Integer count = 0;
  bool changed = false;
  luaL_Buffer out;
  luaL_buffinit(L, &out);
  while (count < most) {
    const char* const e = matcher.at(s, p);
    if (e && e != last) {
      ++count;
      changed = add_replacement(L, out, matcher, s, e) || changed;
      s = last = e;
    } else if (s < matcher.end()) {
      luaL_addchar(&out, *s++);
    } else {
      break;
    }
    if (anchored) break;
  }
  if (changed) {
    luaL_addlstring(&out, s, static_cast<size_t>(matcher.end() - s));
    luaL_pushresult(&out);
  } else {
    lua_pushvalue(L, 1);
  }
  lua_pushinteger(L, count);
  return 2;
}

}  // namespace

void open_patterns(lua_State* L) {
  const luaL_Reg functions[] = {
      {"find", string_find}, {"match", string_match}, {"gmatch", string_gmatch}, {"gsub", string_gsub}, {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace galley
