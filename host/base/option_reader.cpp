#include "host/base/option_reader.hpp"

#include <algorithm>
#include <charconv>

#include "host/base/nearest.hpp"

namespace galley {
namespace {

/// Returns a hint for a number that came as a text, most often from arg() without a default.
std::string hint_for(const OptionSpec& spec, const Value& value) {
  const auto* text = value.as<std::string>();
  if (!text) return {};
  if (spec.type == OptionType::Choice) return did_you_mean(*text, spec.choices);
  const bool numeric = spec.type == OptionType::Integer || spec.type == OptionType::Number;
  double number = 0;
  const char* const end = text->data() + text->size();
  if (!numeric || text->empty() || std::from_chars(text->data(), end, number).ptr != end) return {};
  return "it is a text; an argument of a recipe is one unless its default is a number: arg(\"name\", " + *text + ")";
}

}  // namespace

Status OptionReader::only(std::span<const OptionSpec> known) const {
  const std::string* unknown = nullptr;
  for (const auto& [name, value] : *table_) {
    if (std::any_of(known.begin(), known.end(), [&](const OptionSpec& spec) { return spec.name == name; })) continue;
    if (!unknown || place_of(name).line < place_of(*unknown).line) unknown = &name;
  }
  if (!unknown) return ok();
  std::string all;
  for (const OptionSpec& spec : known) all += (all.empty() ? "" : ", ") + spec.name;
  const std::string name = shortened(*unknown), near = nearest_option(known, *unknown);
  const std::string owner = context_.owner.empty() ? "" : " of " + context_.owner;
  return error(*unknown, "unknown option '" + context_.prefix + name + "'" + owner + (near.empty() ? "" : "; " + near),
               all.empty() ? context_.owner + " has no options" : "options" + owner + ": " + all);
}

Status OptionReader::only(std::initializer_list<const char*> known) const {
  std::vector<OptionSpec> specs(known.size());
  std::transform(known.begin(), known.end(), specs.begin(), [](const char* name) { return OptionSpec{.name = name}; });
  return only(specs);
}

const Value* OptionReader::find(const std::string& name) const {
  const auto at = table_->find(name);
  return at == table_->end() || at->second.is_nil() ? nullptr : &at->second;
}

std::string OptionReader::called(const std::string& name) const {
  return "'" + context_.prefix + name + "'" + (context_.owner.empty() ? "" : " of " + context_.owner);
}

Error OptionReader::error(const std::string& name, const std::string& cause, std::string hint) const {
  return recipe_error(place_of(name).text() + ": " + cause, std::move(hint));
}

Error OptionReader::wrong(const std::string& name, const std::string& wanted, std::string hint) const {
  const Value* value = find(name);
  return error(name, called(name) + " must be " + wanted + ", not " + (value ? context_.show(*value) : "nothing"), std::move(hint));
}

Error OptionReader::missing(const std::string& name, std::string hint) const {
  return error(name, called(name) + " is missing", std::move(hint));
}

Result<Value> OptionReader::take(const OptionSpec& spec) const {
  const Value* value = find(spec.name);
  if (!value && spec.required) return missing(spec.name, "it must be " + spec.expects() + ": " + spec.description);
  if (!value) return spec.fallback;
  Result<Value> taken = spec.accept(*value, context_.show);
  if (taken) return taken;
  const std::string hint = hint_for(spec, *value);
  return error(spec.name, called(spec.name) + " " + taken.error().cause, hint.empty() ? spec.description : hint);
}

template <class T>
Result<std::optional<T>> OptionReader::take_as(OptionSpec spec) const {
  const Value value = TRY(take(spec));
  if (value.is_nil()) return std::optional<T>();
  return std::optional<T>(*value.as<T>());
}

Result<std::optional<int64_t>> OptionReader::integer(const std::string& name, int64_t least, int64_t most) const {
  OptionSpec spec{.name = name, .type = OptionType::Integer};
  if (least != INT64_MIN) spec.range.low = static_cast<double>(least);
  if (most != INT64_MAX) spec.range.high = static_cast<double>(most);
  return take_as<int64_t>(std::move(spec));
}

Result<std::optional<double>> OptionReader::number(const std::string& name, const Range& range) const {
  return take_as<double>({.name = name, .type = OptionType::Number, .range = range});
}

Result<std::optional<bool>> OptionReader::boolean(const std::string& name) const {
  return take_as<bool>({.name = name, .type = OptionType::Boolean});
}

Result<std::optional<std::string>> OptionReader::text(const std::string& name) const {
  return take_as<std::string>({.name = name, .type = OptionType::String});
}

Result<std::optional<std::vector<std::string>>> OptionReader::texts(const std::string& name) const {
  const std::optional<List> list = TRY(take_as<List>({.name = name, .type = OptionType::Strings}));
  if (!list) return std::optional<std::vector<std::string>>();
  if (list->empty()) return wrong(name, "a string or a list of strings");
  std::vector<std::string> out;
  for (const Value& text : *list) out.push_back(*text.as<std::string>());
  return std::optional(std::move(out));
}

Result<std::optional<size_t>> OptionReader::choice(const OptionSpec& spec) const {
  const Value word = TRY(take(spec));
  if (word.is_nil()) return std::optional<size_t>();
  return std::optional(
      static_cast<size_t>(std::find(spec.choices.begin(), spec.choices.end(), *word.as<std::string>()) - spec.choices.begin()));
}

}  // namespace galley
