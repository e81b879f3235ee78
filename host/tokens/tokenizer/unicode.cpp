#include "host/tokens/tokenizer/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "host/tokens/tokenizer/unicode_tables.hpp"

namespace galley {
namespace {

void append_normalized(std::string_view text, NormalForm form, std::string* out) {
  const bool composes = form == NormalForm::C || form == NormalForm::KC, compatible = form == NormalForm::KC || form == NormalForm::KD;
  const int options = UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &made, static_cast<utf8proc_option_t>(options));
  if (size < 0) {
    *out += text;
    return;
  }
  out->append(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
  std::free(made);  // NOLINT(cppcoreguidelines-no-malloc): utf8proc's own way
}

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  // Below U+0300 nothing composes or is composed, in ASCII nothing is changed at all: most text is as it should be.
  const uint8_t least = form == NormalForm::C ? 0xCC : 0x80;
  const bool plain = std::all_of(text.begin(), text.end(), [&](char c) { return static_cast<uint8_t>(c) < least; });
  if (plain) return std::string(text);
  std::string out;
  out.reserve(text.size());
  // What the library does not normalize stands between texts that are normalized by themselves: nothing moves over it or composes with it.
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const CodePoint c = next_code_point(text.substr(at));
    if (is_in(kNotNormalized, c.value)) {
      append_normalized(text.substr(done, at - done), form, &out);
      out += text.substr(at, c.bytes);
      done = at + c.bytes;
    }
    at += c.bytes;
  }
  append_normalized(text.substr(done), form, &out);
  return out;
}

void append_lower(char32_t c, std::string* out) {
  if (c == 0x130) *out += "i\xCC\x87";  // the only one that becomes two
  else if (c < 0x80) out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  else {
    const auto later = std::find_if(std::begin(kLower), std::end(kLower), [c](const LowerRange& l) { return is_in({&l.range, 1}, c); });
    const auto code = static_cast<utf8proc_int32_t>(c);
    append_utf8(static_cast<char32_t>(later != std::end(kLower) ? code + later->distance : utf8proc_tolower(code)), out);
  }
}

bool is_numeric(char32_t c) {
  // Numbers of Unicode 15 to 17, which utf8proc 2.8 (Unicode 14) does not know and the tokenizers library does.
  static constexpr std::pair<char32_t, char32_t> later[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x11DE0, 0x11DE9},
                                                            {0x11F50, 0x11F59}, {0x16130, 0x16139}, {0x16D70, 0x16D79}, {0x16FF4, 0x16FF6},
                                                            {0x1CCF0, 0x1CCF9}, {0x1D2C0, 0x1D2D3}, {0x1E4F0, 0x1E4F9}, {0x1E5F1, 0x1E5FA}};
  if (c >= later[0].first &&
      std::any_of(std::begin(later), std::end(later), [c](const auto& range) { return c >= range.first && c <= range.second; }))
    return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool is_space(char32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return c == 0x200C || c == 0x200D || is_in(kLaterWords, c);
  }
}

bool is_combining_mark(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME ? !is_in(kNoMarks, c) : c == 0x1CF2 || c == 0x1CF3;
}

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO && !is_in(kNoPunctuation, c)) || c == 0x166D || c == 0x111C9;
}

bool is_bert_control(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) >= UTF8PROC_CATEGORY_CC && !is_in(kNoControl, c);
}

bool is_bert_accent(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN ? !is_in(kNoAccents, c) : c == 0x1734;
}

}  // namespace galley
