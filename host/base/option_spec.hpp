// What is said of one option, in a manifest or by whoever reads it, and the one place where a value is held against it.
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

/// "integer", "number", …: as manifests write it.
const char* option_type_name(OptionType type);
/// Every name, in the order of OptionType.
const std::vector<std::string>& option_type_names();

/// An interval of numbers, in a manifest `range = "[0, 1)"` or `min = 0`, `max = 1`.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;

  /// "[0, 1)", "(0, inf)". The error has no place.
  static Result<Range> parse(std::string_view text);
  bool contains(double x) const { return (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high); }
  bool everything() const { return low == -std::numeric_limits<double>::infinity() && high == std::numeric_limits<double>::infinity(); }
  std::string text() const;
};

/// The text, or its first 60 bytes.
std::string shortened(const std::string& text);

/// A value as a person would write it: 'text', 0.1, { 0.9, 0.95 }. Long ones are cut.
std::string value_text(const Value& value);

struct OptionSpec {
  std::string name;
  std::string description = {};  ///< one sentence
  OptionType type = OptionType::Number;
  Value fallback = {};  ///< `default`; nil: none
  Range range = {};     ///< of a number, or of each number of a list
  std::vector<std::string> choices = {};
  int64_t length = 0;     ///< of a list; 0: any
  bool schedule = false;  ///< may depend on the step
  bool required = false;
  std::vector<std::string> aliases = {};  ///< what others call it: for the hint only
  int line = 0;                           ///< in the manifest
  std::string wanted = {};                ///< what `expects` says, where the type does not say it all
  std::vector<OptionSpec> fields = {};    ///< of Tables: what each table may have
  /// Of Strings: each is a pattern of names, and one that finds nothing is refused. "parameters", "trained" parameters, "states", "nodes";
  /// "": they are no patterns of these.
  std::string matches = {};

  /// The value in the form that plugins read (integers and bytes as int64_t, numbers as double, lists as List, a schedule as it is; in
  /// tables, defaults for what is absent), or what is wrong with it: "must be a number in [0, 1), not 1.5". Integers are taken for numbers,
  /// whole numbers for integers, a single value for a list of one. `show` says how messages show a value.
  Result<Value> accept(const Value& value, const std::function<std::string(const Value&)>& show = value_text) const;
  /// "a number in [0, 1), or a schedule": what `accept` takes, for messages and help.
  std::string expects() const;
};

/// "did you mean 'lr'?" for a name that none of the options has: the one that it is an alias of, or the nearest; "": none is near.
std::string nearest_option(std::span<const OptionSpec> known, const std::string& name);

}  // namespace galley
