#include "host/tokens/tokenizer/graphemes.hpp"

#include <utf8proc.h>

#include "host/tokens/tokenizer/grapheme_tables.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {
namespace {

/// A character that utf8proc knows and treats as it should treat `c`.
char32_t known(char32_t c) {
  if (c < 0x897) return c;
  if (c == 0x113D1) return 0x600;   // comes before the character that it belongs to
  if (c == 0x11A3A) return 0x4E00;  // no longer does
  return is_in(kLaterExtending, c) ? 0x300 : is_in(kLaterSpacing, c) ? 0x903 : c;
}

/// Rule GB9c: a consonant joins one before it where a linker stands among the marks between them.
class Conjunct {
 public:
  /// Whether `c`, with all before it, goes on after a linker as a consonant.
  bool joins(char32_t c) {
    const bool consonant = is_in(kConsonants, c);
    const bool joined = consonant && consonant_ && linked_;
    if (consonant) {
      consonant_ = true;
      linked_ = false;
    } else if (is_in(kLinkers, c)) {
      linked_ = true;
    } else {
      const int boundary = utf8proc_get_property(static_cast<utf8proc_int32_t>(known(c)))->boundclass;
      if (c == 0x200C || (boundary != UTF8PROC_BOUNDCLASS_EXTEND && boundary != UTF8PROC_BOUNDCLASS_ZWJ)) consonant_ = linked_ = false;
    }
    return joined;
  }

 private:
  bool consonant_ = false, linked_ = false;
};

}  // namespace

size_t first_grapheme(std::string_view text) {
  CodePoint last = next_code_point(text);
  size_t end = last.bytes;
  utf8proc_int32_t state = 0;
  Conjunct conjunct;
  conjunct.joins(last.value);
  while (end < text.size()) {
    const CodePoint c = next_code_point(text.substr(end));
    // Two of ASCII are two clusters, but for the end of a line.
    if (last.value < 0x80 && c.value < 0x80 && last.value != '\r') break;
    const bool breaks = utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(known(last.value)),
                                                         static_cast<utf8proc_int32_t>(known(c.value)), &state);
    if (!conjunct.joins(c.value) && breaks) break;
    end += c.bytes;
    last = c;
  }
  return end;
}

}  // namespace galley
