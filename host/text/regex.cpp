#include "host/text/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

namespace galley {
namespace {

pcre2_code* code_of(void* code) { return static_cast<pcre2_code*>(code); }

// Letters and numbers of Unicode 15 and 16, which PCRE2 10.42 (Unicode 14) does not know and the tokenizers library does.
constexpr const char* kLetters =
    "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D65}"
    "\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}"
    "\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}"
    "\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}\\x{16D40}-\\x{16D6C}"
    "\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}"
    "\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}";
constexpr const char* kNumbers =
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}"
    "\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}";

/// What \s, \p{L} and \p{N} mean, as it stands inside a class; null for anything else. \s is White_Space: PCRE2's own takes U+180E for one.
const char* meaning(std::string_view escape) {
  static const std::string letters = std::string("\\p{L}") + kLetters, numbers = std::string("\\p{N}") + kNumbers;
  if (escape == "\\s") return "\\p{White_Space}";
  if (escape == "\\p{L}" || escape == "\\pL" || escape == "\\p{Letter}") return letters.c_str();
  if (escape == "\\p{N}" || escape == "\\pN" || escape == "\\p{Number}") return numbers.c_str();
  return nullptr;
}

/// The pattern in PCRE2's words.
Result<std::string> translated(const std::string& pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size();) {
    if (pattern[i] != '\\') {
      if (pattern[i] == '[') in_class = true;
      if (pattern[i] == ']') in_class = false;
      out += pattern[i++];
      continue;
    }
    const char kind = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    size_t end = std::min(i + 2, pattern.size());
    if ((kind == 'p' || kind == 'P') && end < pattern.size()) {
      const size_t close = pattern[end] == '{' ? pattern.find('}', end) : end;
      if (close != std::string::npos) end = close + 1;
    }
    std::string escape = pattern.substr(i, end - i);
    const bool negative = kind == 'S' || kind == 'P';
    if (negative) escape[1] = kind == 'S' ? 's' : 'p';
    const char* means = meaning(escape);
    if (!means) out += pattern.substr(i, end - i);
    else if (!in_class) out += std::string(negative ? "[^" : "[") + means + "]";
    else if (!negative) out += means;
    else return recipe_error("'" + pattern.substr(i, end - i) + "' inside a class is not supported");
    i = end;
  }
  return out;
}

}  // namespace

Result<Regex> Regex::compile(const std::string& pattern) {
  const std::string text = TRY(translated(pattern));
  int number = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C, &number, &at, nullptr);
  if (!code) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(number, message, sizeof message);
    return recipe_error("the regular expression '" + pattern + "' cannot be used: " + reinterpret_cast<const char*>(message));
  }
  // Without JIT (a processor that it does not know) matching is slower, not other.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(code);
}

Regex::~Regex() { pcre2_code_free(code_of(code_)); }
Regex::Regex(Regex&& other) noexcept : code_(std::exchange(other.code_, nullptr)) {}
Regex& Regex::operator=(Regex&& other) noexcept {
  std::swap(code_, other.code_);
  return *this;
}

Regex::Matches::Matches(const Regex& regex) : data_(pcre2_match_data_create_from_pattern(code_of(regex.code_), nullptr)) {}
Regex::Matches::~Matches() { pcre2_match_data_free(static_cast<pcre2_match_data*>(data_)); }

bool Regex::find(std::string_view text, size_t from, Matches& matches, Span* out) const {
  auto* data = static_cast<pcre2_match_data*>(matches.data_);
  const int found = pcre2_match(code_of(code_), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data, nullptr);
  if (found < 0) return false;
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  *out = {ends[0], ends[1]};
  return true;
}

}  // namespace galley
