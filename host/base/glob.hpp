// Matches names with patterns as shells write them: `*` matches any characters, also none, `?` one, [a-z] one of a set and [!a-z] one that
// is not in it. A `[` without `]` matches itself. Bytes are compared, whatever the locale. Header-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace galley {

/// Returns whether the set that begins with the `[` at `at` has the character; moves `at` after its `]`. A `[` that nothing closes is a
/// character.
inline bool glob_set_has(std::string_view pattern, size_t* at, char c) {
  size_t p = *at + 1;
  const bool negated = p < pattern.size() && (pattern[p] == '!' || pattern[p] == '^');
  if (negated) ++p;
  const size_t close = pattern.find(']', p + 1);  // a `]` in the first place is a member
  if (close == std::string_view::npos) return pattern[(*at)++] == c;
  *at = close + 1;
  const auto code = [](char character) { return static_cast<unsigned char>(character); };
  for (; p < close; ++p) {
    const bool range = p + 2 < close && pattern[p + 1] == '-';
    const char last = range ? pattern[p + 2] : pattern[p];
    if (code(pattern[p]) <= code(c) && code(c) <= code(last)) return !negated;
    if (range) p += 2;
  }
  return negated;
}

/// Returns whether the pattern matches all of the text. Takes time in proportion to the product of their sizes at most: after a mismatch
/// the last `*` takes one character more, and the earlier ones need not be tried again.
inline bool glob_matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    size_t next = p;
    bool same = p < pattern.size() && pattern[p] != '*';
    if (same) same = pattern[p] == '[' ? glob_set_has(pattern, &next, text[t]) : pattern[next++] == text[t] || pattern[p] == '?';
    if (same) {
      p = next;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// Returns whether the text is a pattern at all.
inline bool is_glob(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

/// Returns the folder in which a pattern begins; returns any other path as it is. A folder that exists is no pattern: "runs/exp[1]/*.txt"
/// begins in "runs/exp[1]" if there is such a folder, else in "runs".
inline std::filesystem::path before_wildcards(const std::filesystem::path& path) {
  std::filesystem::path out;
  std::error_code error;
  for (const std::filesystem::path& part : path) {
    if (is_glob(part.string()) && !std::filesystem::exists(out / part, error)) break;
    out /= part;
  }
  return out;
}

}  // namespace galley
