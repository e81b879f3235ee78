// Formatted text.
#pragma once

#include <cstdio>
#include <string>

namespace galley {

/// What printf would print, of at most 400 bytes.
template <class... A>
std::string printed(const char* format, A... values) {
  char text[400];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace galley
