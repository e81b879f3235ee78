// Regular expressions of tokenizer files, by PCRE2 with its compiler to machine code. Files are written for Oniguruma; what the two read
// differently (\s in particular) is translated.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "host/base/result.hpp"

namespace galley {

/// Immutable once compiled. [thread-safe], except that each thread needs a Matches of its own.
class Regex {
 public:
  static Result<Regex> compile(const std::string& pattern);
  ~Regex();
  Regex(Regex&& other) noexcept;
  Regex& operator=(Regex&& other) noexcept;

  /// Room for one match at a time: one a thread.
  class Matches {
   public:
    explicit Matches(const Regex& regex);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;

   private:
    friend class Regex;
    void* data_;
  };

  struct Span {
    size_t begin = 0, end = 0;
  };
  /// The first match at or behind `from` that is not empty; false when there is none, or when matching was given up (a pattern that goes wild
  /// on a text): the rest then counts as no match. `text` is UTF-8.
  bool find(std::string_view text, size_t from, Matches& matches, Span* out) const;

 private:
  explicit Regex(void* code) : code_(code) {}
  void* code_ = nullptr;  // pcre2_code
};

}  // namespace galley
