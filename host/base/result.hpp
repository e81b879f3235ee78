// Errors are values. A function that can fail returns Result<T> (or Status, when there is nothing to return); TRY passes a
// failure on. A message names the place, the value and what to do next; `assert` is kept for Galley's own mistakes.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace galley {

/// The exit code of the process, and so the kind of an error. The values are part of the command line's contract.
enum class Exit : int {
  Done = 0,
  Failed = 1,         ///< the run failed: I/O, a full disk, a loss that is not finite
  Recipe = 2,         ///< the recipe, a file it names or the command line is wrong
  DoesNotFit = 3,     ///< the plan needs more memory than there is
  Plugin = 4,         ///< a plugin is at fault
  Interrupted = 130,  ///< stopped by a signal, after saving
};

/// One failure: one line of cause with place and value, and a hint (may be empty) that says what to do.
struct Error {
  Exit exit = Exit::Failed;
  std::string cause;
  std::string hint = {};
};

inline Error recipe_error(std::string cause, std::string hint = {}) { return {Exit::Recipe, std::move(cause), std::move(hint)}; }
inline Error run_error(std::string cause, std::string hint = {}) { return {Exit::Failed, std::move(cause), std::move(hint)}; }
inline Error plugin_error(std::string cause, std::string hint = {}) { return {Exit::Plugin, std::move(cause), std::move(hint)}; }

/// Either a T or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    assert(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    assert(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    assert(ok());
    return std::get<0>(std::move(state_));
  }
  const Error& error() const& {
    assert(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    assert(!ok());
    return std::get<1>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    assert(error_);
    return *error_;
  }
  Error&& error() && {
    assert(error_);
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

inline Status ok() { return {}; }

/// Evaluates to the value of a Result, or returns its error from the enclosing function. May be used within another TRY, but
/// not beside values that own something within braces: compilers forget to destroy those.
#define TRY(...) GALLEY_TRY(GALLEY_NAMED(galley_result_, __COUNTER__), __VA_ARGS__)
/// Does the same for a Status, which has no value.
#define TRY_STATUS(...) GALLEY_TRY_STATUS(GALLEY_NAMED(galley_status_, __COUNTER__), __VA_ARGS__)

#define GALLEY_NAMED(name, number) GALLEY_JOINED(name, number)
#define GALLEY_JOINED(name, number) name##number
#define GALLEY_TRY(result, ...)                         \
  __extension__({                                       \
    auto result = (__VA_ARGS__);                        \
    if (!result.ok()) return std::move(result).error(); \
    std::move(result).value();                          \
  })
#define GALLEY_TRY_STATUS(status, ...)                  \
  do {                                                  \
    ::galley::Status status = (__VA_ARGS__);            \
    if (!status.ok()) return std::move(status).error(); \
  } while (false)

}  // namespace galley
