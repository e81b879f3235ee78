#include "pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string_view>

#include "galley/cpp/plugin.hpp"

namespace galley::peft {
namespace {

// Names of modules have some hundred bytes; a pattern that needs more than this has gone wild. It is reached in a tenth of a second.
constexpr uint32_t kSteps = 1'000'000, kKilobytes = 64u << 10;

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// The length of what stands at the begin of `rest`, as far as it is read as one thing; 0: it does not mean the same to both.
size_t understood(std::string_view rest, bool in_class, bool first) {
  if (rest[0] == '\\') {
    const char c = rest.size() > 1 ? rest[1] : '\\';
    if (is_digit(c)) return !in_class && c != '0' && !(rest.size() > 2 && is_digit(rest[2])) ? 2 : 0;
    if (!is_letter(c)) return std::min<size_t>(2, rest.size());
    return std::string_view(in_class ? "abdDfnrsStwW" : "aAbBdDfnrsStwWZ").find(c) == std::string_view::npos ? 0 : 2;
  }
  if (in_class) return rest.starts_with("[:") || rest.starts_with("[.") || rest.starts_with("[=") ? 0 : 1;
  if (rest.starts_with("(*")) return 0;
  if (!rest.starts_with("(?")) return 1;
  if (first && rest.starts_with("(?i)")) return 4;
  for (const std::string_view group : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:", "(?P<", "(?P="})
    if (rest.starts_with(group)) return group.size();
  return 0;
}

/// {,n} and {,}, which begin at 0 for Python and are characters for PCRE2: as long as that is, else 0.
size_t open_interval(std::string_view rest) {
  if (!rest.starts_with("{,")) return 0;
  size_t end = 2;
  while (end < rest.size() && is_digit(rest[end])) ++end;
  return end < rest.size() && rest[end] == '}' ? end + 1 : 0;
}

}  // namespace

Pattern::Pattern(const std::string& text, std::string where) : where_(std::move(where) + ": the regular expression '" + text + "'") {
  std::string translated;
  bool in_class = false;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    if (const size_t length = in_class ? 0 : open_interval(rest)) {
      translated.append("{0").append(rest.substr(1, length - 1));
      at += length;
      continue;
    }
    size_t length = understood(rest, in_class, at == 0);
    if (length == 0) wrong("has '" + text.substr(at, rest[0] == '(' ? 3 : 2) + "', which is not supported here");
    if (in_class) {
      in_class = rest[0] != ']';
    } else if (rest[0] == '[') {
      in_class = true;
      length = rest.starts_with("[^") ? 2 : 1;
      if (rest.size() > length && rest[length] == ']') ++length;  // a character, where a class begins with it
    }
    translated += rest.substr(0, length);
    at += length;
  }
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(pcre2_compile_context_create(nullptr),
                                                                                              &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_UCP, &error,
                                   &offset, context.get());
  if (!code) wrong("cannot be used: " + message_of(error));
  code_ = {code, [](pcre2_code* c) { pcre2_code_free(c); }};
}

bool Pattern::matches(const std::string& name) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create_from_pattern(code, nullptr),
                                                                                 &pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(pcre2_match_context_create(nullptr),
                                                                                          &pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), kSteps);
  pcre2_set_heap_limit(context.get(), kKilobytes);
  const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, PCRE2_ANCHORED | PCRE2_ENDANCHORED,
                                data.get(), context.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) wrong("cannot be matched against '" + name + "': " + message_of(found));
  return found >= 0;
}

void Pattern::wrong(const std::string& why) const { sdk::invalid(where_ + " " + why); }

}  // namespace galley::peft
