// Regular expressions of tokenizer files, written for Oniguruma and matched by PCRE2 with its compiler to machine code.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "host/base/result.hpp"

namespace galley {

/// Immutable once compiled. [thread-safe], except that each thread needs a Matches of its own.
class Regex {
 public:
  /// What Oniguruma would read otherwise is an error that names it (oniguruma.hpp).
  static Result<Regex> compile(const std::string& pattern);
  ~Regex();
  Regex(Regex&& other) noexcept;
  Regex& operator=(Regex&& other) noexcept;

  /// Room for one match at a time: one a thread. Grows with what matches take, within the limits of find().
  class Matches {
   public:
    explicit Matches(const Regex& regex);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;

   private:
    friend class Regex;
    void* data_;             // pcre2_match_data
    void* context_;          // pcre2_match_context
    void* stack_ = nullptr;  // pcre2_jit_stack, of a thread that has needed one
  };

  struct Span {
    size_t begin = 0, end = 0;
  };
  /// The first match at or after `from`, which may be empty; false when there is none. Steps are bounded by the length of the text and
  /// memory by some 64 MiB: a match that takes more (a pattern that goes wild on a text) is an error. `text` is UTF-8.
  Result<bool> find(std::string_view text, size_t from, Matches& matches, Span* out) const;

 private:
  Regex(void* code, std::string pattern) : code_(code), pattern_(std::move(pattern)) {}
  int match(std::string_view text, size_t from, const Matches& matches) const;
  void* code_ = nullptr;  // pcre2_code
  std::string pattern_;   // as it was given
};

}  // namespace galley
