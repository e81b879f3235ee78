// Declares an option, in a manifest or in the host, and checks values by its declaration.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/result.hpp"
#include "host/base/schedule.hpp"
#include "host/base/value.hpp"

namespace galley {

enum class OptionType { Integer, Number, Boolean, String, Strings, Numbers, Path, Choice, Bytes, Tables };

/// Returns "integer", "number", …, as manifests write them, in the order of OptionType.
const std::vector<std::string>& option_type_names();

/// An interval of numbers, in a manifest `range = "[0, 1)"` or `min = 0`, `max = 1`.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;

  /// Parses "[0, 1)" or "(0, inf)". The error has no place.
  static Result<Range> parse(std::string_view text);
  bool contains(double x) const { return (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high); }
  bool everything() const { return low == -std::numeric_limits<double>::infinity() && high == std::numeric_limits<double>::infinity(); }
  std::string text() const;
};

/// Returns the text, or its first 60 bytes.
std::string shortened(const std::string& text);

/// Returns a value as a person would write it: 'text', 0.1, { 0.9, 0.95 }. Long ones are cut.
std::string value_text(const Value& value);

struct OptionSpec {
  std::string name;
  std::string description = {};  ///< one sentence
  OptionType type = OptionType::Number;
  Value fallback = {};  ///< `default`; nil: none
  Range range = {};     ///< the range of a number, or of each number of a list
  std::vector<std::string> choices = {};
  int64_t length = 0;     ///< the length of a list; 0: any
  bool schedule = false;  ///< may depend on the step
  bool required = false;
  std::vector<std::string> aliases = {};  ///< what others call it: for the hint only
  int line = 0;                           ///< its line in the manifest
  std::string wanted = {};                ///< what `expects` returns, if the type does not say it all
  std::vector<OptionSpec> fields = {};    ///< Tables: the options of each table
  /// Strings: each is a pattern of names, and one that matches nothing is refused: of "parameters", "trained" parameters, "states" or
  /// "nodes". Numbers: "tokens", each by its id or its text, which becomes the id before accept() sees it. "": none of these.
  std::string matches = {};

  /// Returns the value in the form that plugins read (integers and bytes as int64_t, numbers as double, lists as List, a schedule as it is;
  /// in tables, defaults for what is absent), or the error "must be a number in [0, 1), not 1.5". Accepts integers as numbers, whole
  /// numbers as integers, and a single value as a list of one. `show` prints a value for messages.
  Result<Value> accept(const Value& value, const std::function<std::string(const Value&)>& show = value_text) const;
  /// Returns what `accept` takes, for messages and help: "a number in [0, 1), or a schedule".
  std::string expects() const;
};

/// Returns "did you mean 'lr'?" for an unknown name: the option that it is an alias of, or the nearest; "" if none is near.
std::string nearest_option(std::span<const OptionSpec> known, const std::string& name);

}  // namespace galley
