#include "host/tokens/tokenizer/byte_alphabet.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>

#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

// Bytes that print as they are keep their code point; the others get the next free ones from U+0100.
struct Alphabet {
  std::unordered_map<char32_t, uint8_t> byte;
  std::array<char32_t, 256> character;

  Alphabet() {
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = prints ? b : next++;
      byte[c] = static_cast<uint8_t>(b);
      character[b] = c;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet a;
  return a;
}

}  // namespace

std::optional<std::string> bytes_of_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint c = next_code_point(text);
    const auto it = alphabet().byte.find(c.value);
    if (it == alphabet().byte.end()) return std::nullopt;
    out.push_back(static_cast<char>(it->second));
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string text_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char b : bytes) append_utf8(alphabet().character[static_cast<uint8_t>(b)], &out);
  return out;
}

std::vector<std::string> byte_characters() {
  std::array<char32_t, 256> sorted = alphabet().character;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> out(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) append_utf8(sorted[i], &out[i]);
  return out;
}

}  // namespace galley
