// Translates patterns for Oniguruma, which the tokenizers library uses with Ruby's syntax, into patterns for PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "host/base/result.hpp"

namespace galley {

/// Returns a pattern that PCRE2 reads, with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE, as Oniguruma reads `pattern`. What PCRE2 lacks or
/// reads otherwise is an error that names it; so is whatever is not known here to mean the same. PCRE2 checks whether the rest is
/// well-formed.
Result<std::string> pcre2_of_oniguruma(std::string_view pattern);

}  // namespace galley
