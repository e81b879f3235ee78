#include "host/recipe/arguments.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "host/base/json.hpp"
#include "host/base/nearest.hpp"
#include "host/recipe/foreign.hpp"

namespace galley {
namespace {

constexpr size_t kMostArguments = 1000;

template <class T>
bool parse(const std::string& text, T* number) {
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(begin, end, *number);
  return code == std::errc() && stop == end && begin != end;
}

/// Returns the text as a value of the default's type.
Result<Value> convert(const std::string& text, const Value& like) {
  if (like.as<bool>()) {
    if (text == "true" || text == "True") return Value(true);
    if (text == "false" || text == "False") return Value(false);
    return recipe_error("true or false");
  }
  if (like.as<int64_t>()) {
    int64_t integer = 0;
    if (parse(text, &integer)) return Value(integer);
    double number = 0;
    if (!parse(text, &number) || !std::isfinite(number)) return recipe_error("an integer");
    if (std::floor(number) == number && std::abs(number) < 9007199254740992.0) return Value(static_cast<int64_t>(number));  // 1e3
    return recipe_error("an integer", "; for fractions, the recipe has to give a default such as " + to_json(like) + ".0");
  }
  if (like.as<double>()) {
    double number = 0;
    if (parse(text, &number) && std::isfinite(number)) return Value(number);
    return recipe_error("a number");
  }
  return Value(text);
}

}  // namespace

Result<Value> Arguments::ask(const std::string& name, const Value& otherwise, const Place& place) {
  const bool plain =
      otherwise.is_nil() || otherwise.as<bool>() || otherwise.as<int64_t>() || otherwise.as<double>() || otherwise.as<std::string>();
  if (!plain)
    return recipe_error("the default of argument '" + name + "' is a " + otherwise.type_name(),
                        "defaults are texts, numbers, true or false");
  if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) {
    if (asked_.size() == kMostArguments) return recipe_error("a recipe has at most " + std::to_string(kMostArguments) + " arguments");
    asked_.push_back(name);
  }
  if (!otherwise.is_nil()) defaults_[name] = otherwise.as<std::string>() ? *otherwise.as<std::string>() : to_json(otherwise);

  const auto given = sets_.find(name);
  if (given == sets_.end()) {
    if (!otherwise.is_nil()) return otherwise;
    const bool known = std::any_of(missing_.begin(), missing_.end(), [&](const auto& one) { return one.first == name; });
    if (!known) missing_.emplace_back(name, place);
    return Value(std::string());
  }
  Result<Value> value = convert(given->second, otherwise);
  if (!value) {
    return recipe_error("argument '" + name + "' must be " + value.error().cause + ", got " + json_quote(given->second),
                        "its default is " + defaults_[name] + ", which decides the type" + value.error().hint);
  }
  if (value->as<std::string>() && std::find(given_texts_.begin(), given_texts_.end(), given->second) == given_texts_.end()) {
    given_texts_.push_back(given->second);
  }
  return value;
}

std::string Arguments::usage(const std::vector<std::string>& names) const {
  if (names.empty()) return "this recipe has no arguments";
  std::string text = "the arguments of this recipe:";
  for (const std::string& name : names) {
    const auto otherwise = defaults_.find(name);
    const bool needed = std::any_of(missing_.begin(), missing_.end(), [&](const auto& one) { return one.first == name; });
    text += (name == names.front() ? " " : ", ") + name;
    if (otherwise != defaults_.end()) text += " = " + otherwise->second;
    else if (needed) text += " (needed)";
  }
  return text + "; set with --set name=value";
}

Status Arguments::finish(const std::string& file, const std::filesystem::path& library, const std::vector<std::string>& names,
                         const std::vector<std::string>& always) const {
  std::vector<std::string> all = asked_;
  for (const std::string& name : names) {
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  }
  for (const auto& [name, value] : sets_) {
    if (std::find(all.begin(), all.end(), name) != all.end() || std::find(always.begin(), always.end(), name) != always.end()) continue;
    const std::string here = foreign_name(library, name).argument;
    const bool meant = std::find(all.begin(), all.end(), here) != all.end();
    const std::string near = meant ? "did you mean '" + here + "'?" : did_you_mean(name, all);
    return recipe_error(file + ": there is no argument '" + name + "'" + (near.empty() ? "" : "; " + near), usage(all));
  }
  if (missing_.empty()) return ok();
  std::string list;
  for (size_t i = 0; i < missing_.size(); ++i) {
    list += (i == 0 ? "'" : i + 1 == missing_.size() ? " and '" : ", '") + missing_[i].first + "'";
  }
  return recipe_error(missing_.front().second.text() +
                          (missing_.size() == 1 ? ": argument " + list + " is" : ": arguments " + list + " are") + " not given",
                      usage(all));
}

}  // namespace galley
