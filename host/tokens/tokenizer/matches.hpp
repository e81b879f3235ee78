// Splits a text into what a pattern matches and what lies between.
#pragma once

#include <string_view>

#include "host/tokens/tokenizer/regex.hpp"
#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {

/// Calls `each(begin, end, is_match)`, which returns a Status, with the parts of a text in order. Of those between matches none is empty.
/// `text` is UTF-8. An error where the regular expression gives up.
template <class Each>
Status each_match(const Regex& regex, std::string_view text, Regex::Matches& matches, Each&& each) {
  size_t done = 0, from = 0;
  bool matched = false;  // and ended at `done`
  while (from <= text.size() && !text.empty()) {
    Regex::Span span;
    if (!TRY(regex.find(text, from, matches, &span))) break;
    // An empty match cuts between two characters. Right after another match it is none.
    if (matched && span.begin == span.end && span.end == done) {
      if (from == text.size()) break;
      from += next_code_point(text.substr(from)).bytes;
      continue;
    }
    if (done < span.begin) TRY_STATUS(each(done, span.begin, false));
    TRY_STATUS(each(span.begin, span.end, true));
    done = from = span.end;
    matched = true;
  }
  return done < text.size() ? each(done, text.size(), false) : ok();
}

/// The same with characters, each of which is a match by itself where `is_match(c)`.
template <class IsMatch, class Each>
Status each_character(std::string_view text, IsMatch&& is_match, Each&& each) {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c =
        static_cast<uint8_t>(text[at]) < 0x80 ? CodePoint{static_cast<uint8_t>(text[at]), 1, true} : next_code_point(text.substr(at));
    if (is_match(c.value)) {
      if (done < at) TRY_STATUS(each(done, at, false));
      TRY_STATUS(each(at, at + c.bytes, true));
      done = at + c.bytes;
    }
    at += c.bytes;
  }
  return done < text.size() ? each(done, text.size(), false) : ok();
}

}  // namespace galley
