// Patterns written for Oniguruma, which the tokenizers library uses with Ruby's syntax, in the words of PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "host/base/result.hpp"

namespace galley {

/// A pattern that PCRE2 reads, with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE, as Oniguruma reads `pattern`. What PCRE2 lacks or reads
/// otherwise is an error that names it; so is whatever is not known here to mean the same. Whether the rest is well-formed is left to
/// PCRE2.
Result<std::string> pcre2_of_oniguruma(std::string_view pattern);

}  // namespace galley
