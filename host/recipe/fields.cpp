#include "host/recipe/fields.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

#include "host/base/json.hpp"
#include "host/base/nearest.hpp"
#include "host/recipe/language.hpp"

namespace galley {
namespace {

const Table kNothing;
const EntryLines kNoLines;

/// A hint for a number that came as a text, most often from arg() without a default.
std::string hint_for(const Value* value) {
  const auto* text = value ? value->as<std::string>() : nullptr;
  double number = 0;
  if (!text || text->empty() || std::from_chars(text->data(), text->data() + text->size(), number).ptr != text->data() + text->size())
    return {};
  return "an argument is a text unless its default is a number: arg(\"name\", " + *text + ")";
}

}  // namespace

std::string shown(const Value& value) {
  if (const Entry* entry = find_entry(value)) return entry->kind_name();
  if (value.as<List>()) return "a list";
  if (value.as<Table>()) return "a table";
  if (const auto* text = value.as<std::string>()) return json_quote(text->size() <= 60 ? *text : text->substr(0, 57) + "...");
  return value.is_nil() ? "nil" : to_json(value);
}

Status Fields::only(std::initializer_list<const char*> known) const {
  const std::vector<std::string> names(known.begin(), known.end());
  const std::string* unknown = nullptr;
  for (const auto& [name, value] : table_) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (!unknown || place_of(name).line < place_of(*unknown).line) unknown = &name;
  }
  if (!unknown) return ok();
  const std::string name = unknown->size() <= 60 ? *unknown : unknown->substr(0, 60) + "...";
  const std::string near = did_you_mean(name, names);
  std::string list;
  for (const std::string& one : names) list += (list.empty() ? "" : ", ") + one;
  return error(*unknown, "unknown entry '" + name + "' of " + owner_ + (near.empty() ? "" : "; " + near), "there are " + list);
}

const Value* Fields::find(const std::string& name) const {
  const auto entry = table_.find(name);
  return entry == table_.end() || entry->second.is_nil() ? nullptr : &entry->second;
}

Place Fields::place_of(const std::string& name) const {
  const auto line = lines_.find(name);
  return line == lines_.end() ? place_ : Place{place_.file, line->second};
}

Result<std::optional<int64_t>> Fields::integer(const std::string& name, int64_t least, int64_t most) const {
  const Value* value = find(name);
  if (!value) return std::optional<int64_t>();
  std::optional<int64_t> integer;
  if (const auto* whole = value->as<int64_t>()) integer = *whole;
  // 1e3 is a float in Lua, and a whole number.
  const auto* number = value->as<double>();
  if (number && *number >= -0x1p53 && *number <= 0x1p53 && *number == static_cast<double>(static_cast<int64_t>(*number)))
    integer = static_cast<int64_t>(*number);
  if (integer && *integer >= least && *integer <= most) return integer;
  const bool small = integer && *integer > most;
  return wrong(name, "an integer " + (small ? "≤ " + std::to_string(most) : "≥ " + std::to_string(least)), hint_for(value));
}

Result<std::optional<double>> Fields::number(const std::string& name) const {
  const Value* value = find(name);
  if (!value) return std::optional<double>();
  double number = 0;
  if (!value->number(&number)) return wrong(name, "a number", hint_for(value));
  return std::optional<double>(number);
}

Result<std::optional<bool>> Fields::boolean(const std::string& name) const {
  const Value* value = find(name);
  if (!value) return std::optional<bool>();
  if (!value->as<bool>()) return wrong(name, "true or false");
  return std::optional<bool>(*value->as<bool>());
}

Result<std::optional<std::string>> Fields::text(const std::string& name) const {
  const Value* value = find(name);
  if (!value) return std::optional<std::string>();
  if (!value->as<std::string>()) return wrong(name, "a text");
  return std::optional<std::string>(*value->as<std::string>());
}

Result<std::optional<Fields>> Fields::table(const std::string& name, const std::string& example) const {
  const Value* value = find(name);
  if (!value) return std::optional<Fields>();
  const Place place = place_of(name);
  if (const auto* list = value->as<List>(); list && list->empty())
    return std::optional<Fields>(Fields(kNothing, place, kNoLines, name, name + "."));
  if (!value->as<Table>()) return wrong(name, "a table such as " + example);
  return std::optional<Fields>(Fields(*value->as<Table>(), place, kNoLines, name, name + "."));
}

Error Fields::error(const std::string& name, const std::string& cause, std::string hint) const {
  return recipe_error(place_of(name).text() + ": " + cause, std::move(hint));
}

Error Fields::wrong(const std::string& name, const std::string& wanted, std::string hint) const {
  const Value* value = find(name);
  return error(name, "'" + prefix_ + name + "' must be " + wanted + ", got " + (value ? shown(*value) : "nothing"), std::move(hint));
}

Error Fields::missing(const std::string& name, std::string hint) const {
  return recipe_error(place_.text() + ": '" + prefix_ + name + "' is missing", std::move(hint));
}

}  // namespace galley
