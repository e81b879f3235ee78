// Patterns for names of tensors, the same in every plugin: `*` matches any characters, `?` matches one. Header-only.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace galley::sdk {

inline bool glob_match(std::string_view pattern, std::string_view text) {
  // After a mismatch, the last `*` matches one more character: earlier ones need not be tried again.
  size_t p = 0, t = 0, star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
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

/// Whether the pattern matches the whole name, or the part after one of its dots: "q_proj" and "self_attn.*" match
/// "model.layers.0.self_attn.q_proj".
inline bool glob_match_suffix(std::string_view pattern, std::string_view name) {
  if (glob_match(pattern, name)) return true;
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1))
    if (glob_match(pattern, name.substr(dot + 1))) return true;
  return false;
}

/// Returns how many insertions, deletions and replacements would make `text` match the pattern.
inline size_t glob_distance(std::string_view pattern, std::string_view text) {
  std::vector<size_t> row(text.size() + 1), last;
  for (size_t t = 0; t <= text.size(); ++t) row[t] = t;
  for (const char c : pattern) {
    last = row;
    if (c == '*') {
      for (size_t t = 1; t <= text.size(); ++t) row[t] = std::min(last[t], row[t - 1]);
      continue;
    }
    ++row[0];
    for (size_t t = 1; t <= text.size(); ++t)
      row[t] = std::min({last[t] + 1, row[t - 1] + 1, last[t - 1] + (c == '?' || c == text[t - 1] ? 0u : 1u)});
  }
  return row[text.size()];
}

/// Returns "the nearest are 'a', 'b' and 'c'", for a pattern that matches none of `names`. Of names that differ only in numbers (layers),
/// it considers the first.
inline std::string nearest_names(std::string_view pattern, const std::vector<std::string>& names, size_t most = 3) {
  std::vector<std::pair<size_t, std::string>> found;
  std::vector<std::string> seen;
  for (const std::string& name : names) {
    std::string kind;
    for (const char c : name)
      if (c < '0' || c > '9') kind += c;
    if (std::find(seen.begin(), seen.end(), kind) != seen.end()) continue;
    seen.push_back(kind);
    size_t distance = glob_distance(pattern, name);
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      distance = std::min(distance, glob_distance(pattern, std::string_view(name).substr(dot + 1)));
    found.emplace_back(distance, name);
  }
  if (found.empty()) return "there is nothing to match";
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  found.resize(std::min(found.size(), most));
  std::string text = found.size() == 1 ? "the nearest is " : "the nearest are ";
  for (size_t i = 0; i < found.size(); ++i) text += (i == 0 ? "'" : i + 1 == found.size() ? " and '" : ", '") + found[i].second + "'";
  return text;
}

}  // namespace galley::sdk
