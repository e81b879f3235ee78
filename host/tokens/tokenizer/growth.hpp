// Bounds how long the rules of a tokenizer.json may make a text.
#pragma once

#include <string>

#include "host/tokens/tokenizer/fields.hpp"

namespace galley {

/// How many times as long a chain of rules can make a text, in bytes. SentencePiece's make 3 of a space; NFKC makes 11 of the worst.
class Growth {
 public:
  static constexpr double kMost = 64;
  /// A rule that makes a text at most `times` as long. An error where that is too much with those before.
  Status add(const JsonObject& rule, double times);

 private:
  double so_far_ = 1;
};

/// At most so long, for each byte that a string matched, or a regular expression, is a text in which all is replaced.
double growth_of_replace(const JsonObject::Pattern& what, const std::string& by);

}  // namespace galley
