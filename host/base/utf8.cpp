#include "host/base/utf8.hpp"

#include <cstring>
#include <utility>

namespace galley {
namespace {

constexpr char32_t kOfByte = 0x10F700;  // + byte
bool stands_for_byte(const CodePoint& c) { return c.value >> 8 == kOfByte >> 8; }

/// The least second byte and the greatest after a lead byte: what keeps out overlong forms, surrogates and what lies beyond U+10FFFF.
std::pair<uint8_t, uint8_t> second_byte(uint8_t lead) {
  switch (lead) {
    case 0xE0: return {0xA0, 0xBF};
    case 0xED: return {0x80, 0x9F};
    case 0xF0: return {0x90, 0xBF};
    case 0xF4: return {0x80, 0x8F};
    default: return {0x80, 0xBF};
  }
}

}  // namespace

CodePoint next_code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const uint32_t length = lead >= 0xC2 && lead <= 0xDF ? 2 : (lead & 0xF0) == 0xE0 ? 3 : lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
  if (!length) return {0xFFFD, 1, false};
  char32_t value = lead & (0x7Fu >> length);
  for (uint32_t i = 1; i < length; ++i) {
    const auto [least, most] = i == 1 ? second_byte(lead) : std::pair<uint8_t, uint8_t>(0x80, 0xBF);
    if (i >= text.size() || byte(i) < least || byte(i) > most) return {0xFFFD, i, false};
    value = value << 6 | (byte(i) & 0x3F);
  }
  return {value, length, true};
}

void append_utf8(char32_t c, std::string* out) {
  const auto put = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    uint64_t eight = 0;
    if (text.size() >= sizeof eight) {
      std::memcpy(&eight, text.data(), sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        text.remove_prefix(sizeof eight);
        continue;
      }
    }
    const CodePoint c = next_code_point(text);
    if (!c.valid) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

std::string valid_utf8(std::string_view text, int64_t* broken) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = next_code_point(text);
    if (c.valid) {
      out.append(text.substr(0, c.bytes));
    } else {
      out += "\xEF\xBF\xBD";
      if (broken) ++*broken;
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string utf8_of_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const CodePoint c = next_code_point(bytes);
    if (c.valid && !stands_for_byte(c)) {
      out.append(bytes.substr(0, c.bytes));
    } else {
      for (const char byte : bytes.substr(0, c.bytes)) append_utf8(kOfByte + static_cast<unsigned char>(byte), &out);
    }
    bytes.remove_prefix(c.bytes);
  }
  return out;
}

std::string bytes_of_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = next_code_point(text);
    if (c.valid && stands_for_byte(c)) out += static_cast<char>(c.value & 0xFF);
    else out.append(text.substr(0, c.bytes));
    text.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace galley
