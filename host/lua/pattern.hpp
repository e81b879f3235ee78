// Lua's patterns (reference manual, 6.4.1), matched under the Sandbox's clock: a pattern of a few characters can keep Lua's own matcher busy
// for years, and it never looks up.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "host/lua/libraries.hpp"

namespace galley {

/// One pattern on one subject; both outlive it. Every function raises on a malformed pattern and when a limit has been passed.
class PatternMatcher {
 public:
  /// `pattern` comes without the '^' that anchors it. Both texts end in a '\0' beyond their size, as Lua's strings do.
  PatternMatcher(lua_State* L, std::string_view subject, std::string_view pattern);

  /// Matches at `from`; the position behind the match, or null.
  const char* match(const char* from);

  /// Captures of the last match.
  int captures() const { return level_; }
  /// Pushes capture `index` (from 0). With no captures in the pattern, number 0 is the whole match [begin, end).
  void push_capture(int index, const char* begin, const char* end);
  /// Pushes all captures, or the whole match when there are none and `begin` is not null. Returns how many.
  int push_captures(const char* begin, const char* end);

  lua_State* state() const { return L_; }
  const char* begin() const { return subject_; }
  const char* end() const { return subject_end_; }
  Ticker& ticker() { return ticker_; }

 private:
  static constexpr std::ptrdiff_t kOpen = -1, kPosition = -2;
  static constexpr int kCaptures = 32, kDepth = 200;
  struct Capture {
    const char* begin;
    std::ptrdiff_t size;
  };

  const char* run(const char* s, const char* p);
  const char* item(const char* s, const char* p, bool* done, const char** next);
  const char* end_of_class(const char* p);
  bool single(const char* s, const char* p, const char* class_end);
  bool in_set(unsigned char c, const char* p, const char* last);
  const char* balanced(const char* s, const char* p);
  const char* frontier(const char* s, const char* p, const char** next);
  const char* longest(const char* s, const char* p, const char* class_end);
  const char* shortest(const char* s, const char* p, const char* class_end);
  const char* open_capture(const char* s, const char* p, std::ptrdiff_t kind);
  const char* close_capture(const char* s, const char* p);
  const char* repeated(const char* s, char digit);

  lua_State* L_;
  const char *subject_, *subject_end_, *pattern_, *pattern_end_;
  int level_ = 0, depth_ = 0;
  std::array<Capture, kCaptures> capture_;
  Ticker ticker_;
};

}  // namespace galley
