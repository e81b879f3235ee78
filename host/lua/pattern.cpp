#include "host/lua/pattern.hpp"

#include <cctype>
#include <cstring>

namespace galley {
namespace {

unsigned char byte(char c) { return static_cast<unsigned char>(c); }

/// Whether c belongs to the class that a letter behind '%' names; a character that names none stands for itself.
bool in_class(int c, int letter) {
  bool yes = false;
  switch (std::tolower(letter)) {
    case 'a': yes = std::isalpha(c) != 0; break;
    case 'c': yes = std::iscntrl(c) != 0; break;
    case 'd': yes = std::isdigit(c) != 0; break;
    case 'g': yes = std::isgraph(c) != 0; break;
    case 'l': yes = std::islower(c) != 0; break;
    case 'p': yes = std::ispunct(c) != 0; break;
    case 's': yes = std::isspace(c) != 0; break;
    case 'u': yes = std::isupper(c) != 0; break;
    case 'w': yes = std::isalnum(c) != 0; break;
    case 'x': yes = std::isxdigit(c) != 0; break;
    case 'z': yes = c == 0; break;  // deprecated, and still there
    default: return letter == c;
  }
  return std::isupper(letter) ? !yes : yes;
}

}  // namespace

PatternMatcher::PatternMatcher(lua_State* L, std::string_view subject, std::string_view pattern)
    : L_(L),
      subject_(subject.data()),
      subject_end_(subject.data() + subject.size()),
      pattern_(pattern.data()),
      pattern_end_(pattern.data() + pattern.size()),
      ticker_(L) {}

const char* PatternMatcher::match(const char* from) {
  level_ = 0;
  depth_ = 0;
  return run(from, pattern_);
}

/// Matches the pattern from p on at s. Recursion is as deep as the pattern has items, never as the subject is long.
const char* PatternMatcher::run(const char* s, const char* p) {
  if (++depth_ > kDepth) luaL_error(L_, "pattern too complex");
  while (s && p != pattern_end_) {
    ticker_.tick();
    bool done = false;
    const char* next = nullptr;
    s = item(s, p, &done, &next);
    if (done) break;
    p = next;
  }
  --depth_;
  return s;
}

/// One item of the pattern. Either sets *done, having matched all that follows too, or *next to the item behind it.
const char* PatternMatcher::item(const char* s, const char* p, bool* done, const char** next) {
  switch (*p) {
    case '(': *done = true; return p[1] == ')' ? open_capture(s, p + 2, kPosition) : open_capture(s, p + 1, kOpen);
    case ')': *done = true; return close_capture(s, p + 1);
    case '$':
      if (p + 1 != pattern_end_) break;
      *done = true;
      return s == subject_end_ ? s : nullptr;
    case '%':
      if (p[1] == 'b') {
        *next = p + 4;
        return balanced(s, p + 2);
      }
      if (p[1] == 'f') return frontier(s, p + 2, next);
      if (p + 1 != pattern_end_ && std::isdigit(byte(p[1]))) {
        *next = p + 2;
        return repeated(s, p[1]);
      }
      break;
    default: break;
  }
  const char* class_end = end_of_class(p);
  const char suffix = class_end == pattern_end_ ? '\0' : *class_end;
  switch (suffix) {
    case '*': *done = true; return longest(s, p, class_end);
    case '+': *done = true; return single(s, p, class_end) ? longest(s + 1, p, class_end) : nullptr;
    case '-': *done = true; return shortest(s, p, class_end);
    case '?':
      *next = class_end + 1;
      if (!single(s, p, class_end)) return s;
      if (const char* end = run(s + 1, class_end + 1)) {
        *done = true;
        return end;
      }
      return s;
    default: *next = class_end; return single(s, p, class_end) ? s + 1 : nullptr;
  }
}

const char* PatternMatcher::end_of_class(const char* p) {
  const char first = *p++;
  if (first == '%') {
    if (p == pattern_end_) luaL_error(L_, "malformed pattern (ends with '%%')");
    return p + 1;
  }
  if (first != '[') return p;
  if (p != pattern_end_ && *p == '^') ++p;
  do {  // a ']' that comes first stands for itself
    ticker_.tick();
    if (p == pattern_end_) luaL_error(L_, "malformed pattern (missing ']')");
    if (*p++ == '%') {
      if (p == pattern_end_) luaL_error(L_, "malformed pattern (missing ']')");
      ++p;
    }
  } while (p == pattern_end_ || *p != ']');
  return p + 1;
}

bool PatternMatcher::single(const char* s, const char* p, const char* class_end) {
  if (s >= subject_end_) return false;
  ticker_.tick();
  const unsigned char c = byte(*s);
  switch (*p) {
    case '.': return true;
    case '%': return in_class(c, byte(p[1]));
    case '[': return in_set(c, p, class_end - 1);
    default: return byte(*p) == c;
  }
}

/// p is at '[' and last at ']'.
bool PatternMatcher::in_set(unsigned char c, const char* p, const char* last) {
  bool inside = true;
  if (p[1] == '^') {
    inside = false;
    ++p;
  }
  while (++p < last) {
    ticker_.tick();
    if (*p == '%') {
      ++p;
      if (in_class(c, byte(*p))) return inside;
    } else if (p[1] == '-' && p + 2 < last) {
      p += 2;
      if (byte(p[-2]) <= c && c <= byte(*p)) return inside;
    } else if (byte(*p) == c) {
      return inside;
    }
  }
  return !inside;
}

/// %bxy, p behind 'b'.
const char* PatternMatcher::balanced(const char* s, const char* p) {
  if (p + 1 >= pattern_end_) luaL_error(L_, "malformed pattern (missing arguments to '%%b')");
  if (s >= subject_end_ || *s != *p) return nullptr;
  int depth = 1;
  for (++s; s < subject_end_; ++s) {
    ticker_.tick();
    if (*s == p[1]) {
      if (--depth == 0) return s + 1;
    } else if (*s == *p) {
      ++depth;
    }
  }
  return nullptr;
}

/// %f[set], p behind 'f'.
const char* PatternMatcher::frontier(const char* s, const char* p, const char** next) {
  if (p == pattern_end_ || *p != '[') luaL_error(L_, "missing '[' after '%%f' in pattern");
  const char* class_end = end_of_class(p);
  *next = class_end;
  const char before = s == subject_ ? '\0' : s[-1];
  const char here = s == subject_end_ ? '\0' : *s;
  return !in_set(byte(before), p, class_end - 1) && in_set(byte(here), p, class_end - 1) ? s : nullptr;
}

const char* PatternMatcher::longest(const char* s, const char* p, const char* class_end) {
  std::ptrdiff_t n = 0;
  while (single(s + n, p, class_end)) ++n;
  for (; n >= 0; --n) {
    ticker_.tick();
    if (const char* end = run(s + n, class_end + 1)) return end;
  }
  return nullptr;
}

const char* PatternMatcher::shortest(const char* s, const char* p, const char* class_end) {
  for (;; ++s) {
    ticker_.tick();
    if (const char* end = run(s, class_end + 1)) return end;
    if (!single(s, p, class_end)) return nullptr;
  }
}

const char* PatternMatcher::open_capture(const char* s, const char* p, std::ptrdiff_t kind) {
  if (level_ >= kCaptures) luaL_error(L_, "too many captures");
  capture_[static_cast<size_t>(level_++)] = {s, kind};
  const char* end = run(s, p);
  if (!end) --level_;
  return end;
}

const char* PatternMatcher::close_capture(const char* s, const char* p) {
  int open = level_ - 1;
  while (open >= 0 && capture_[static_cast<size_t>(open)].size != kOpen) --open;
  if (open < 0) luaL_error(L_, "invalid pattern capture");
  Capture& capture = capture_[static_cast<size_t>(open)];
  capture.size = s - capture.begin;
  const char* end = run(s, p);
  if (!end) capture.size = kOpen;
  return end;
}

/// %1 … %9: what that capture matched, once more.
const char* PatternMatcher::repeated(const char* s, char digit) {
  const int index = digit - '1';
  if (index < 0 || index >= level_ || capture_[static_cast<size_t>(index)].size == kOpen) {
    luaL_error(L_, "invalid capture index %%%d in pattern", index + 1);
  }
  const Capture& capture = capture_[static_cast<size_t>(index)];
  if (capture.size == kPosition) return nullptr;
  const auto size = static_cast<size_t>(capture.size);
  ticker_.tick(1 + size / 32);
  if (static_cast<size_t>(subject_end_ - s) < size || std::memcmp(capture.begin, s, size) != 0) return nullptr;
  return s + size;
}

void PatternMatcher::push_capture(int index, const char* begin, const char* end) {
  if (index >= level_) {
    if (index != 0) luaL_error(L_, "invalid capture index %%%d", index + 1);
    lua_pushlstring(L_, begin, static_cast<size_t>(end - begin));
    return;
  }
  const Capture& capture = capture_[static_cast<size_t>(index)];
  if (capture.size == kOpen) luaL_error(L_, "unfinished capture");
  if (capture.size == kPosition) lua_pushinteger(L_, capture.begin - subject_ + 1);
  else lua_pushlstring(L_, capture.begin, static_cast<size_t>(capture.size));
}

int PatternMatcher::push_captures(const char* begin, const char* end) {
  const int n = level_ == 0 && begin ? 1 : level_;
  luaL_checkstack(L_, n, "too many captures");
  for (int i = 0; i < n; ++i) push_capture(i, begin, end);
  return n;
}

}  // namespace galley
