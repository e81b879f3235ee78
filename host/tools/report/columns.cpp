#include "host/tools/report/columns.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace galley {
namespace {

struct CodePoints {
  uint32_t first, last;
};
/// Of Unicode's East_Asian_Width: what is wide there, in blocks.
constexpr CodePoints wide_ones[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},
                                    {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},
                                    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
                                    {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
/// Marks that stand over the character before them, joiners and selectors.
constexpr CodePoints without_width[] = {{0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD},  {0x064B, 0x065F},
                                        {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F},  {0x20D0, 0x20FF},
                                        {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xE0100, 0xE01EF}};

template <size_t N>
bool has_code_point(const CodePoints (&ranges)[N], uint32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges), [&](const CodePoints& r) { return r.first <= c && c <= r.last; });
}

/// The bytes of the character at the begin of a text that is not empty, and its columns.
std::pair<size_t, size_t> character_of(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const size_t bytes = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  if (bytes == 1) return {1, first < 0x20 || first == 0x7F ? 0 : 1};
  if (bytes == 0 || bytes > text.size()) return {1, 1};
  uint32_t c = first & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if (next >> 6 != 2) return {1, 1};
    c = c << 6 | (next & 0x3Fu);
  }
  return {bytes, has_code_point(without_width, c) ? 0 : has_code_point(wide_ones, c) ? 2 : 1};
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const auto [bytes, width] = character_of(text);
    columns += width;
    text.remove_prefix(bytes);
  }
  return columns;
}

size_t bytes_within(std::string_view text, size_t columns) {
  size_t at = 0, used = 0;
  while (at < text.size()) {
    const auto [bytes, width] = character_of(text.substr(at));
    if (used + width > columns) break;
    used += width;
    at += bytes;
  }
  return at;
}

std::string cut_middle(std::string_view text, size_t columns) {
  const size_t width = display_width(text);
  if (width <= columns) return std::string(text);
  if (columns == 0) return "";
  const std::string begin(text.substr(0, bytes_within(text, (columns - 1) / 2)));
  // What is left of the columns goes to the end, which is found by leaving out as many from the begin.
  const size_t tail = columns - 1 - display_width(begin);
  std::string_view end = text;
  while (display_width(end) > tail) end.remove_prefix(character_of(end).first);
  return begin + "…" + std::string(end);
}

std::string left_in(std::string_view text, size_t columns) {
  std::string out = cut_middle(text, columns);
  out.append(columns - std::min(columns, display_width(out)), ' ');
  return out;
}

std::string right_in(std::string_view text, size_t columns) {
  const std::string cut = cut_middle(text, columns);
  return std::string(columns - std::min(columns, display_width(cut)), ' ') + cut;
}

std::string wrapped(std::string_view text, size_t columns, size_t indent) {
  std::string out;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    size_t room = columns;
    while (display_width(line) > room) {
      // The last space with words before it that is within the line; else the first one after a longer word.
      const size_t words = std::min(line.find_first_not_of(' '), line.size()), within = bytes_within(line, room);
      size_t at = line.rfind(' ', within);
      if (at == std::string_view::npos || at < words) at = line.find(' ', std::max(words, within));
      if (at == std::string_view::npos) break;
      out.append(line.substr(0, line.find_last_not_of(' ', at) + 1)) += '\n';
      out.append(indent, ' ');
      line.remove_prefix(std::min(line.find_first_not_of(' ', at), line.size()));
      room = columns > indent ? columns - indent : 1;
    }
    out += line;
    if (end == text.size()) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string wrapped_lines(std::string_view text, size_t columns) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::string_view half = line.substr(0, bytes_within(line, columns / 2));
    const size_t indent = std::min(half.find_first_not_of(' '), half.size());
    const size_t gap = half.rfind("  ");
    const bool entry = gap != std::string_view::npos && gap >= indent;
    out += wrapped(line, columns, entry ? display_width(half.substr(0, gap + 2)) : indent + 2);
    if (end == text.size()) break;
    out += '\n';
    text.remove_prefix(end + 1);
  }
  return out;
}

bool utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    std::string text = value;
    for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace galley
