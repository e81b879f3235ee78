#include "host/lua/library/raise.hpp"

#include <cstdlib>

namespace galley {

int find_line(lua_State* L, lua_Debug* frame) {
  lua_Debug other;
  int line = 0;
  for (int level = 0; level < 256 && lua_getstack(L, level, &other); ++level) {
    lua_getinfo(L, "Sl", &other);
    if (other.currentline <= 0) continue;
    const bool file = *other.source == '@';
    if (line == 0 || file) {
      *frame = other;
      line = other.currentline;
    }
    if (file) break;
  }
  return line;
}

std::string file_of(const lua_Debug& frame) { return *frame.source == '@' || *frame.source == '=' ? frame.source + 1 : frame.short_src; }

bool has_place(std::string_view message) {
  for (size_t colon = message.find(':'); colon != message.npos; colon = message.find(':', colon + 1)) {
    size_t end = colon + 1;
    while (end < message.size() && message[end] >= '0' && message[end] <= '9') ++end;
    if (end > colon + 1 && message.substr(end, 2) == ": ") return colon > 0;
    if (message[colon] == '\n') return false;
  }
  return false;
}

void raise_text(lua_State* L, const std::string& message) {
  lua_pushlstring(L, message.data(), message.size());
  lua_error(L);
  std::abort();  // lua_error does not return, but does not say so
}

void raise(lua_State* L, const Error& error) {
  std::string file;
  const int line = current_line(L, &file);
  std::string message = line > 0 ? file + ":" + std::to_string(line) + ": " + error.cause : error.cause;
  if (!error.hint.empty()) message += "\n" + error.hint;
  raise_text(L, message);
}

int current_line(lua_State* L, std::string* file) {
  lua_Debug frame;
  const int line = find_line(L, &frame);
  if (line > 0) *file = file_of(frame);
  return line;
}

}  // namespace galley
