// Classifies and changes code points for tokenizers, by utf8proc's tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "host/base/utf8.hpp"

namespace galley {

/// The normalization forms of Unicode Standard Annex 15. `text` is UTF-8.
enum class NormalForm : uint8_t { C, D, KC, KD };
std::string normalized(std::string_view text, NormalForm form);

/// The lower case of a character, which may be several, whatever stands around it.
void append_lower(char32_t c, std::string* out);

/// Says whether c is of the general categories Nd, Nl, No.
bool is_numeric(char32_t c);
/// Says whether c has the property White_Space.
bool is_space(char32_t c);
/// Alphabetic, a mark, a decimal digit, a connector or a joiner: what \w means (Unicode Technical Standard 18).
bool is_word(char32_t c);

/// Says whether c is of the general categories Mn, Mc, Me.
bool is_combining_mark(char32_t c);
/// What BertPreTokenizer and Punctuation take for punctuation, and BertNormalizer for control characters and accents: that of ASCII and
/// general categories Pc … Ps; Cc, Cf, Co; Mn.
bool is_bert_punctuation(char32_t c);
bool is_bert_control(char32_t c);
bool is_bert_accent(char32_t c);

}  // namespace galley
