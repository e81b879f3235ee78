// Regular expressions as PEFT's configurations hold them: Python's, matched against the names of modules.
#pragma once

#include <memory>
#include <string>

namespace galley::peft {

/// Functions throw sdk::Failure with one line that names the pattern and where it stands.
class Pattern {
 public:
  /// What PCRE2, which matches, lacks or reads differently from Python is an error that names it.
  Pattern(const std::string& text, std::string where);
  /// Python's re.fullmatch. A match that takes too many steps is an error.
  bool matches(const std::string& name) const;

 private:
  [[noreturn]] void wrong(const std::string& why) const;
  std::string where_;                 // with the text
  std::shared_ptr<const void> code_;  // pcre2_code
};

}  // namespace galley::peft
