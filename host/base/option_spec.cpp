#include "host/base/option_spec.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "host/base/nearest.hpp"
#include "host/base/units.hpp"

namespace galley {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kLongestValue = 60;  // bytes of a value in a message

std::string number_text(double x) {
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  if (std::floor(x) == x && std::abs(x) < 1e12) return std::to_string(static_cast<int64_t>(x));  // 10000000, not 1e+07
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x);
  return {buffer, end.ptr};
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<double> parse_bound(std::string_view text) {
  text = trim(text);
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() || std::isnan(value)) return std::nullopt;
  return value;
}

std::string list_text(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "'" : i + 1 == names.size() ? " or '" : ", '") + names[i] + "'";
  return text;
}

std::optional<int64_t> whole(const Value& value) {
  if (const auto* i = value.as<int64_t>()) return *i;
  const auto* d = value.as<double>();
  if (d && std::floor(*d) == *d && std::abs(*d) < 9007199254740992.0) return static_cast<int64_t>(*d);
  return std::nullopt;
}

/// A table whose entries are options. `where`: "in entry 2".
Result<Value> accept_table(const Table& table, const std::vector<OptionSpec>& fields, const std::string& where,
                           const std::function<std::string(const Value&)>& show) {
  for (const auto& [name, value] : table) {
    if (std::any_of(fields.begin(), fields.end(), [&, &key = name](const OptionSpec& field) { return field.name == key; })) continue;
    const std::string near = nearest_option(fields, name);
    return recipe_error("has an unknown option '" + shortened(name) + "' " + where + (near.empty() ? "" : "; " + near));
  }
  Table out;
  for (const OptionSpec& field : fields) {
    const auto at = table.find(field.name);
    const bool given = at != table.end() && !at->second.is_nil();
    if (!given && field.required) return recipe_error("has no '" + field.name + "' " + where + ": " + field.description);
    if (!given) {
      if (!field.fallback.is_nil()) out[field.name] = field.fallback;
      continue;
    }
    Result<Value> accepted = field.accept(at->second, show);
    if (!accepted) return recipe_error("is wrong " + where + ": '" + field.name + "' " + accepted.error().cause);
    out[field.name] = std::move(*accepted);
  }
  return Value(std::move(out));
}

}  // namespace

std::string nearest_option(std::span<const OptionSpec> known, const std::string& name) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : known) {
    if (std::find(spec.aliases.begin(), spec.aliases.end(), name) != spec.aliases.end()) return "did you mean '" + spec.name + "'?";
    names.push_back(spec.name);
  }
  return did_you_mean(shortened(name), names);
}

std::string shortened(const std::string& text) {
  if (text.size() <= kLongestValue) return text;
  size_t end = kLongestValue;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole characters
  return text.substr(0, end) + "...";
}

const std::vector<std::string>& option_type_names() {
  static const std::vector<std::string> names = {"integer", "number", "boolean", "string", "strings",
                                                 "numbers", "path",   "choice",  "bytes",  "tables"};
  return names;
}

Result<Range> Range::parse(std::string_view text) {
  const Error wrong = plugin_error("'" + std::string(text) + "' is not an interval like \"[0, 1)\" or \"(0, inf)\"");
  const std::string_view all = trim(text);
  const size_t comma = all.find(',');
  if (all.size() < 5 || comma == std::string_view::npos) return wrong;
  if ((all.front() != '[' && all.front() != '(') || (all.back() != ']' && all.back() != ')')) return wrong;
  const auto low = parse_bound(all.substr(1, comma - 1)), high = parse_bound(all.substr(comma + 1, all.size() - comma - 2));
  if (!low || !high || *low > *high) return wrong;
  return Range{*low, *high, all.front() == '(', all.back() == ')'};
}

std::string Range::text() const {
  return (low_open || low == -kInfinity ? "(" : "[") + number_text(low) + ", " + number_text(high) +
         (high_open || high == kInfinity ? ")" : "]");
}

std::string value_text(const Value& value) {
  if (const auto* b = value.as<bool>()) return *b ? "true" : "false";
  if (const auto* i = value.as<int64_t>()) return std::to_string(*i);
  if (const auto* d = value.as<double>()) return number_text(*d);
  if (const auto* s = value.as<std::string>()) return "'" + shortened(*s) + "'";
  if (const auto* s = value.as<Schedule>()) return s->text;
  if (const auto* list = value.as<List>()) {
    std::string text = "{";
    for (size_t i = 0; i < list->size() && text.size() <= kLongestValue; ++i) text += (i ? ", " : " ") + value_text((*list)[i]);
    if (text.size() > kLongestValue) return shortened(text);
    return text + (list->empty() ? "}" : " }");
  }
  return value.is_nil() ? "nil" : "a table";
}

std::string OptionSpec::expects() const {
  if (!wanted.empty()) return wanted;
  const std::string within = range.everything() ? "" : " in " + range.text();
  const std::string many = length ? std::to_string(length) + " " : "";
  switch (type) {
    case OptionType::Integer: return "a whole number" + within + (schedule ? ", or a schedule" : "");
    case OptionType::Number:
      return "a number" + within + (schedule ? ", or a schedule" : "") + (choices.empty() ? "" : ", or " + list_text(choices));
    case OptionType::Boolean: return "true or false";
    case OptionType::String: return "a string";
    case OptionType::Strings: return "a string or a list of strings";
    case OptionType::Numbers:
      return matches == "tokens" ? "a list of " + many + "tokens, by their ids or their texts" : "a list of " + many + "numbers" + within;
    case OptionType::Path: return "a path";
    case OptionType::Choice: return list_text(choices);
    case OptionType::Bytes: return "an amount of memory like \"24GiB\", or a number of bytes";
    case OptionType::Tables: {
      std::string names;
      for (const OptionSpec& field : fields) names += (names.empty() ? "" : ", ") + field.name;
      return "a list of tables of " + names;
    }
  }
  return {};
}

Result<Value> OptionSpec::accept(const Value& value, const std::function<std::string(const Value&)>& show) const {
  const auto wrong = [&](const Value& what) { return recipe_error("must be " + expects() + ", not " + show(what)); };
  const auto in_range = [&](double x) { return !std::isnan(x) && range.contains(x); };

  if (const auto* s = value.as<Schedule>()) {
    if (!schedule) return wrong(value);
    for (size_t i = 0; i < s->table.size(); ++i) {
      const bool fits = in_range(s->table[i]) && (type == OptionType::Number || whole(Value(s->table[i])));
      if (!fits)
        return recipe_error("must be " + expects() + "; at step " + std::to_string(i + 1) + " " + s->text + " is " +
                            number_text(s->table[i]));
    }
    return value;
  }
  switch (type) {
    case OptionType::Integer: {
      const auto i = whole(value);
      if (!i || !in_range(static_cast<double>(*i))) return wrong(value);
      return Value(*i);
    }
    case OptionType::Number: {
      double x = 0;
      if (const auto* word = value.as<std::string>(); word && std::find(choices.begin(), choices.end(), *word) != choices.end())
        return value;
      if (!value.number(&x) || !in_range(x)) return wrong(value);
      return Value(x);
    }
    case OptionType::Boolean:
      if (!value.as<bool>()) return wrong(value);
      return value;
    case OptionType::String:
    case OptionType::Path:
      if (!value.as<std::string>() || (type == OptionType::Path && value.as<std::string>()->empty())) return wrong(value);
      return value;
    case OptionType::Choice: {
      const auto* s = value.as<std::string>();
      if (!s || std::find(choices.begin(), choices.end(), *s) == choices.end()) return wrong(value);
      return value;
    }
    case OptionType::Bytes: {
      const auto* text = value.as<std::string>();
      const auto bytes = text ? parse_bytes(*text) : Result<int64_t>(whole(value).value_or(0));
      if (!bytes || *bytes <= 0) return wrong(value);
      return Value(*bytes);
    }
    case OptionType::Strings:
    case OptionType::Numbers:
    case OptionType::Tables: break;
  }

  const List single = {value};
  const List* list = value.as<List>();
  const auto* table = value.as<Table>();
  const List none;
  if (!list) list = table && table->empty() ? &none : &single;  // `{}` may arrive as either
  if (length && static_cast<int64_t>(list->size()) != length) return wrong(value);
  List out;
  for (const Value& element : *list) {
    double x = 0;
    if (type == OptionType::Strings) {
      if (!element.as<std::string>()) return wrong(value);
      out.push_back(element);
    } else if (type == OptionType::Tables) {
      const Table* entry = element.as<Table>();
      if (!entry) return wrong(value);
      Result<Value> accepted = accept_table(*entry, fields, "in entry " + std::to_string(out.size() + 1), show);
      if (!accepted) return accepted.error();
      out.push_back(std::move(*accepted));
    } else {
      if (!element.number(&x) || !in_range(x)) return wrong(value);
      out.push_back(Value(x));
    }
  }
  return Value(std::move(out));
}

}  // namespace galley
