// Replaces what a string or a regular expression matches in a text.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "host/tokens/tokenizer/fields.hpp"
#include "host/tokens/tokenizer/regex.hpp"

namespace galley {

/// A Replace of a tokenizer.json: { "pattern": …, "content": … }. Immutable. [thread-safe]
class Replacement {
 public:
  static Result<Replacement> read(const JsonObject& object);
  /// An error where the regular expression gives up. Sets `*front`, which may be null, where the text's first character was left out, or
  /// became one with others.
  Result<std::string> apply(std::string_view text, bool* front = nullptr) const;
  /// How many times as long it can make a text.
  double growth() const { return growth_; }

 private:
  std::string what_, by_;
  std::shared_ptr<const Regex> regex_;  // null: `what_` is a string
  double growth_ = 1;
};

}  // namespace galley
