// Quotes words as they are typed into a shell. Header-only.
#pragma once

#include <string>

namespace galley {

/// Returns the word as it is, or in quotes if the shell would read more into it.
inline std::string shell_word(const std::string& word) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace galley
