#include "host/tokens/tokenizer/precompiled.hpp"

#include <algorithm>
#include <cstring>

#include "host/tokens/tokenizer/graphemes.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

constexpr size_t kLongestWhole = 5;  // bytes of a grapheme that is replaced as a whole

bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

}  // namespace

std::optional<std::string> bytes_of_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out.push_back(static_cast<char>(bits >> held & 0xFF));
  }
  if (held >= 6) return std::nullopt;
  return out;
}

Result<Precompiled> Precompiled::read(std::string_view map) {
  const std::optional<std::string> bytes = bytes_of_base64(map);
  if (!bytes) return recipe_error("'precompiled_charsmap' is not in base64");
  uint32_t size = 0;
  if (bytes->size() >= sizeof size) std::memcpy(&size, bytes->data(), sizeof size);
  if (bytes->size() < sizeof size || size % 4 != 0 || size == 0 || size > bytes->size() - sizeof size)
    return recipe_error("'precompiled_charsmap' has " + std::to_string(bytes->size()) + " bytes, and says that its table has " +
                        std::to_string(size));
  Precompiled out;
  out.units_.resize(size / 4);
  std::memcpy(out.units_.data(), bytes->data() + sizeof size, size);
  out.replacements_ = bytes->substr(sizeof size + size);
  if (!is_utf8(out.replacements_)) return recipe_error("the replacements of 'precompiled_charsmap' are not UTF-8");
  TRY_STATUS(out.check());
  for (size_t c = 1; c < out.ascii_.size(); ++c) {
    const char character = static_cast<char>(c);
    out.ascii_[c] = out.find({&character, 1}).has_value();
  }
  return out;
}

/// Goes to all units that a text can lead to: breadth first, so that each is measured with the fewest bytes that lead to it.
Status Precompiled::check() {
  struct Reached {
    uint32_t unit, children, depth;
  };
  std::vector<bool> seen(units_.size());
  std::vector<Reached> open = {{0, offset_of(units_[0]), 0}};
  for (size_t next = 0; next < open.size(); ++next) {
    const Reached place = open[next];
    const auto outside = [&] {
      return recipe_error("'precompiled_charsmap' is broken: unit " + std::to_string(place.unit) + " of its table of " +
                          std::to_string(units_.size()) + " leads outside");
    };
    if (has_value(units_[place.unit]) && place.depth > 0) {
      if (place.children >= units_.size()) return outside();
      const uint32_t at = value_of(units_[place.children]);
      // The library takes a text without a zero after it to the end.
      if (at > replacements_.size() || (at < replacements_.size() && (static_cast<uint8_t>(replacements_[at]) & 0xC0) == 0x80))
        return outside();
      growth_ = std::max(growth_, static_cast<double>(replacement(at).size()) / place.depth);
    }
    for (uint32_t byte = 1; byte < 256; ++byte) {
      const uint32_t child = place.children ^ byte;
      if (child >= units_.size() || label_of(units_[child]) != byte || seen[child]) continue;
      seen[child] = true;
      open.push_back({child, child ^ offset_of(units_[child]), place.depth + 1});
    }
  }
  return ok();
}

std::string_view Precompiled::replacement(uint32_t at) const {
  const std::string_view rest = std::string_view(replacements_).substr(at);
  return rest.substr(0, std::min(rest.find('\0'), rest.size()));
}

/// What stands for the shortest beginning of `text` that the map has.
std::optional<std::string_view> Precompiled::find(std::string_view text) const {
  uint32_t place = offset_of(units_[0]);
  for (const char c : text) {
    if (c == '\0') break;
    place ^= static_cast<uint8_t>(c);
    if (place >= units_.size()) break;
    const uint32_t unit = units_[place];
    if (label_of(unit) != static_cast<uint8_t>(c)) break;
    place ^= offset_of(unit);
    if (has_value(unit)) return replacement(value_of(units_[place]));
  }
  return std::nullopt;
}

std::string Precompiled::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte < 0x80 && !ascii_[byte] && (at + 1 == text.size() || (static_cast<uint8_t>(text[at + 1]) < 0x80 && byte != '\r'))) {
      out.push_back(text[at++]);
      continue;
    }
    const std::string_view grapheme = text.substr(at, first_grapheme(text.substr(at)));
    at += grapheme.size();
    if (grapheme.size() <= kLongestWhole) {
      if (const auto found = find(grapheme)) {
        out += *found;
        continue;
      }
    }
    for (size_t i = 0; i < grapheme.size();) {
      const std::string_view c = grapheme.substr(i, next_code_point(grapheme.substr(i)).bytes);
      out += find(c).value_or(c);
      i += c.size();
    }
  }
  return out;
}

}  // namespace galley
