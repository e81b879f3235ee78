#include "host/tokens/tokenizer/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <memory>
#include <new>

#include "host/tokens/tokenizer/oniguruma.hpp"

namespace galley {
namespace {

pcre2_code* code_of(void* code) { return static_cast<pcre2_code*>(code); }

// Tokenizers' patterns take a few steps a character. One that goes wild reaches the limit within seconds.
constexpr uint64_t kSteps = 10'000'000, kStepsPerByte = 16;
// What remembers where a repetition can be taken back: some 20 bytes for each round, on the machine's stack up to 32 KiB.
constexpr size_t kFirstStack = size_t{1} << 18, kLargestStack = size_t{64} << 20;
constexpr uint32_t kHeap = 256u << 10;  // KiB, where there is no compiler to machine code

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

/// PCRE2 answers null where there is no memory.
template <class T>
T* there(T* made) {
  if (!made) throw std::bad_alloc();
  return made;
}

pcre2_match_context* context_of(void* context) { return static_cast<pcre2_match_context*>(context); }

}  // namespace

Result<Regex> Regex::compile(const std::string& pattern) {
  const auto unusable = [&](const std::string& why) {
    return recipe_error("the regular expression '" + pattern + "' cannot be used: " + why);
  };
  const Result<std::string> translated = pcre2_of_oniguruma(pattern);
  if (!translated) return unusable(translated.error().cause);
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(there(pcre2_compile_context_create(nullptr)),
                                                                                              &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get());
  if (!code) return unusable(message_of(error));
  // Without JIT (a processor that it does not know) matching is slower, not other.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(code, pattern);
}

Regex::~Regex() { pcre2_code_free(code_of(code_)); }
Regex::Regex(Regex&& other) noexcept : code_(std::exchange(other.code_, nullptr)), pattern_(std::move(other.pattern_)) {}
Regex& Regex::operator=(Regex&& other) noexcept {
  std::swap(code_, other.code_);
  std::swap(pattern_, other.pattern_);
  return *this;
}

Regex::Matches::Matches(const Regex& regex)
    : data_(there(pcre2_match_data_create_from_pattern(code_of(regex.code_), nullptr))),
      context_(there(pcre2_match_context_create(nullptr))) {
  pcre2_set_heap_limit(context_of(context_), kHeap);
}

Regex::Matches::~Matches() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data_));
  pcre2_match_context_free(context_of(context_));
  pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(stack_));
}

int Regex::match(std::string_view text, size_t from, const Matches& matches) const {
  return pcre2_match(code_of(code_), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK,
                     static_cast<pcre2_match_data*>(matches.data_), context_of(matches.context_));
}

Result<bool> Regex::find(std::string_view text, size_t from, Matches& matches, Span* out) const {
  pcre2_set_match_limit(context_of(matches.context_),
                        static_cast<uint32_t>(std::min<uint64_t>(kSteps + kStepsPerByte * (text.size() - from), UINT32_MAX)));
  int found = match(text, from, matches);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT && !matches.stack_) {
    matches.stack_ = there(pcre2_jit_stack_create(kFirstStack, kLargestStack, nullptr));
    pcre2_jit_stack_assign(context_of(matches.context_), nullptr, matches.stack_);
    found = match(text, from, matches);
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    return recipe_error("the regular expression '" + pattern_ + "' gives up at byte " + std::to_string(from) + " of " +
                        std::to_string(text.size()) + ": " + message_of(found));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(static_cast<pcre2_match_data*>(matches.data_));
  *out = {ends[0], ends[1]};
  return true;
}

}  // namespace galley
