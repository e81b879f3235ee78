#include "host/tokens/tokenizer/oniguruma.hpp"

#include <algorithm>
#include <cctype>

namespace galley {
namespace {

// Letters and numbers of Unicode 15 and 16, which PCRE2 10.42 (Unicode 14) does not know and the tokenizers library does.
constexpr const char* kLetters =
    "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D65}"
    "\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}"
    "\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}"
    "\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}\\x{16D40}-\\x{16D6C}"
    "\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}"
    "\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}";
constexpr const char* kDecimals =
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}"
    "\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}";
constexpr const char* kOtherNumbers = "\\x{1D2C0}-\\x{1D2D3}";

/// What an escape means where PCRE2's meaning is not good enough, as it stands inside a class; "" for any other. \s is White_Space: PCRE2's
/// own takes U+180E for one.
std::string meaning(std::string_view escape) {
  if (escape == "\\s") return "\\p{White_Space}";
  if (escape == "\\d" || escape == "\\p{Nd}") return std::string("\\p{Nd}") + kDecimals;
  if (escape == "\\p{L}" || escape == "\\p{Letter}") return std::string("\\p{L}") + kLetters;
  if (escape == "\\p{N}" || escape == "\\p{Number}") return std::string("\\p{N}") + kDecimals + kOtherNumbers;
  return "";
}

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translation {
 public:
  explicit Translation(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      switch (pattern_[at_]) {
        case '\\': TRY_STATUS(escape(Within::Pattern)); break;
        case '[': TRY_STATUS(char_class()); break;
        case '(': TRY_STATUS(group()); break;
        case '{': TRY_STATUS(interval()); break;
        default: copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  enum class Within : uint8_t { Pattern, Class };

  bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t bytes) {
    out_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }
  static Error unsupported(std::string_view what, const std::string& where = "") {
    return recipe_error("'" + std::string(what) + "'" + where + " is not supported");
  }

  Status escape(Within within) {
    const std::string_view whole = pattern_.substr(at_, escape_size());
    if (whole.size() < 2 || !is_alphanumeric(whole[1])) {  // a lone backslash is PCRE2's to refuse
      copy(whole.size());
      return ok();
    }
    std::string positive(whole);
    bool negative = std::string_view("SDP").find(whole[1]) != std::string_view::npos;
    if (negative) positive[1] = static_cast<char>(whole[1] - 'A' + 'a');
    if (positive.starts_with("\\p{^")) {
      positive.erase(3, 1);
      negative = !negative;
    }
    const std::string means = meaning(positive);
    if (means.empty()) {
      const bool property = std::tolower(whole[1]) == 'p' && whole.size() > 2;
      const bool place = within == Within::Pattern && (whole[1] == 'A' || whole[1] == 'z');
      const bool character = std::string_view("nrtfae").find(whole[1]) != std::string_view::npos;
      // Two digits of more than 7F are a byte to Oniguruma and a character to PCRE2.
      const bool code = whole.starts_with("\\x{") || (whole[1] == 'x' && whole.size() == 4 && whole[2] < '8');
      if (!property && !place && !character && !code) return unsupported(whole, within == Within::Class ? " inside a class" : "");
      out_ += whole;
    } else if (within == Within::Pattern) {
      out_ += (negative ? "[^" : "[") + means + "]";
    } else if (negative) {
      return unsupported(whole, " inside a class");
    } else {
      out_ += means;
    }
    at_ += whole.size();
    return ok();
  }

  /// Returns the size of the escape at hand, with its braces or hexadecimal digits.
  size_t escape_size() const {
    const std::string_view rest = pattern_.substr(at_);
    const char kind = rest.size() > 1 ? rest[1] : '\0';
    if (kind != 'p' && kind != 'P' && kind != 'x') return std::min<size_t>(2, rest.size());
    if (const size_t close = rest.find('}'); rest.size() > 2 && rest[2] == '{' && close != std::string_view::npos) return close + 1;
    size_t end = 2;
    while (kind == 'x' && end < std::min<size_t>(4, rest.size()) && std::isxdigit(static_cast<unsigned char>(rest[end]))) ++end;
    return end;
  }

  /// Sets are written in Oniguruma as classes inside classes and with &&; Rust's syntax has -- and ~~ besides. PCRE2 takes all of them for
  /// characters. A class in a class adds its characters to those around it: they are written there.
  Status char_class() {
    copy(sees("[^") ? 2 : 1);
    if (sees("]")) {
      out_ += '\\';
      copy(1);
    }
    size_t inner = 0;
    while (at_ < pattern_.size() && (inner > 0 || !sees("]"))) {
      if (sees("]")) {
        if (pattern_[at_ - 1] == '-' || pattern_.substr(at_ + 1).starts_with('-')) return unsupported("]", " beside '-' inside a class");
        --inner;
        ++at_;
        continue;
      }
      for (const char* set : {"&&", "--", "~~"})
        if (sees(set)) return unsupported(set, " inside a class, which computes with sets of characters,");
      if (sees("[")) {
        for (const char* other : {"[:", "[^", "[]", "[-"})
          if (sees(other)) return unsupported(other, " inside a class (for the character '[' write '\\[')");
        if (pattern_[at_ - 1] == '-') return unsupported("-[", " inside a class");
        ++inner;
        ++at_;
        continue;
      }
      if (sees("\\")) TRY_STATUS(escape(Within::Class));
      else copy(1);
    }
    copy(std::min<size_t>(1, pattern_.size() - at_));
    return ok();
  }

  Status group() {
    if (!sees("(?") && !sees("(*")) {
      copy(1);
      return ok();
    }
    // Options in the middle of a pattern reach across a '|' for PCRE2 and not for Oniguruma.
    if (at_ == 0 && sees("(?i)")) {
      copy(4);
      return ok();
    }
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"})
      if (sees(known)) {
        copy(known.size());
        return ok();
      }
    size_t end = at_ + 2;
    while (end < std::min(at_ + 4, pattern_.size()) && static_cast<uint8_t>(pattern_[end]) < 0x80) ++end;
    return unsupported(pattern_.substr(at_, end - at_));
  }

  /// {n}, {n,}, {n,m} or {,m}; any other brace is a character.
  Status interval() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < pattern_.size() && pattern_[end] >= '0' && pattern_[end] <= '9') ++end;
      return end > begin;
    };
    const bool least = digits();
    const bool range = end < pattern_.size() && pattern_[end] == ',';
    if (range) ++end;
    const bool most = range && digits();
    if (end >= pattern_.size() || pattern_[end] != '}' || (!least && !most)) {
      copy(1);
      return ok();
    }
    const std::string_view whole = pattern_.substr(at_, end + 1 - at_);
    const char after = end + 1 < pattern_.size() ? pattern_[end + 1] : '\0';
    if (after == '+' || (after == '?' && !range)) return unsupported(std::string(whole) + after, " (a quantifier after an interval)");
    out_ += least ? std::string(whole) : "{0" + std::string(whole.substr(1));
    at_ = end + 1;
    return ok();
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> pcre2_of_oniguruma(std::string_view pattern) { return Translation(pattern).run(); }

}  // namespace galley
