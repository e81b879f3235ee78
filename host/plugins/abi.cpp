#include "host/plugins/abi.hpp"

#include <cstring>

namespace galley {

void put_text(char* out, size_t room, std::string_view text) {
  size_t n = text.size();
  if (n >= room) {
    n = room - 1;
    while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0u) == 0x80u) --n;
  }
  std::memcpy(out, text.data(), n);
  out[n] = '\0';
}

void fill_error(galley_error* out, galley_status status, std::string_view text, std::string_view hint) {
  if (!out) return;
  out->code = status;
  if (GALLEY_HAS(out, galley_error, hint)) {
    put_text(out->text, sizeof out->text, text);
    put_text(out->hint, sizeof out->hint, hint);
  } else {
    put_text(out->text, sizeof out->text, hint.empty() ? std::string(text) : std::string(text) + "; " + std::string(hint));
  }
}

}  // namespace galley
