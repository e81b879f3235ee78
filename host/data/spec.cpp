#include "host/data/spec.hpp"

#include <algorithm>

#include "host/base/nearest.hpp"

namespace galley {

Error data_error(const DataSpec& spec, const std::string& cause, std::string hint) {
  return recipe_error(spec.place.text() + ": data." + spec.kind + ": " + cause, std::move(hint));
}

Status check_options(const DataSpec& spec, std::initializer_list<const char*> known) {
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [name, value] : spec.options) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::string hint = did_you_mean(name, names);
    if (hint.empty()) {
      hint = names.empty() ? "it takes no options" : "its options:";
      for (const std::string& one : names) hint += (&one == &names.front() ? " " : ", ") + one;
    }
    return data_error(spec, "unknown option '" + name + "'", std::move(hint));
  }
  return ok();
}

const Value* find_option(const DataSpec& spec, const char* name) {
  const auto at = spec.options.find(name);
  return at == spec.options.end() || at->second.is_nil() ? nullptr : &at->second;
}

namespace {

Error wrong_type(const DataSpec& spec, const char* name, const char* wanted, const Value& value) {
  return data_error(spec, "option '" + std::string(name) + "' is " + value.type_name() + " where " + wanted + " belongs");
}

}  // namespace

Result<std::string> string_option(const DataSpec& spec, const char* name, std::string otherwise) {
  const Value* value = find_option(spec, name);
  if (value == nullptr) return otherwise;
  const auto* text = value->as<std::string>();
  if (text == nullptr) return wrong_type(spec, name, "a string", *value);
  return *text;
}

Result<std::vector<std::string>> strings_option(const DataSpec& spec, const char* name) {
  const Value* value = find_option(spec, name);
  if (value == nullptr) return data_error(spec, "option '" + std::string(name) + "' is missing");
  std::vector<std::string> texts;
  if (const auto* text = value->as<std::string>()) texts.push_back(*text);
  if (const auto* list = value->as<List>()) {
    for (const Value& element : *list) {
      const auto* text = element.as<std::string>();
      if (text == nullptr) return wrong_type(spec, name, "a list of strings", element);
      texts.push_back(*text);
    }
  }
  // {} of Lua is a table without entries, which may arrive as either kind.
  const auto* table = value->as<Table>();
  const bool empty_table = table != nullptr && table->empty();
  if (texts.empty() && !empty_table && value->as<List>() == nullptr) return wrong_type(spec, name, "a list of strings", *value);
  if (texts.empty()) return data_error(spec, "option '" + std::string(name) + "' is an empty list");
  return texts;
}

Result<bool> flag_option(const DataSpec& spec, const char* name, bool otherwise) {
  const Value* value = find_option(spec, name);
  if (value == nullptr) return otherwise;
  if (value->as<bool>() == nullptr) return wrong_type(spec, name, "true or false", *value);
  return *value->as<bool>();
}

Result<size_t> choice_option(const DataSpec& spec, const char* name, std::initializer_list<const char*> choices) {
  const std::vector<std::string> names(choices.begin(), choices.end());
  const std::string text = TRY(string_option(spec, name, names.front()));
  const auto it = std::find(names.begin(), names.end(), text);
  if (it != names.end()) return static_cast<size_t>(it - names.begin());
  std::string list;
  for (const std::string& one : names) list += (list.empty() ? "\"" : ", \"") + one + "\"";
  return data_error(spec, "option '" + std::string(name) + "' is '" + text + "'; there is " + list, did_you_mean(text, names));
}

Result<double> fraction_option(const DataSpec& spec, const char* name, double otherwise) {
  const Value* value = find_option(spec, name);
  if (value == nullptr) return otherwise;
  double fraction = 0;
  if (!value->number(&fraction)) return wrong_type(spec, name, "a number", *value);
  if (!(fraction >= 0 && fraction < 1)) {
    return data_error(spec, "option '" + std::string(name) + "' is " + std::to_string(fraction) + "; it must be at least 0 and below 1");
  }
  return fraction;
}

Result<BatchLayout> recipe_layout(const DataSpec& spec, const Recipe& recipe) {
  if (!recipe.batch) return data_error(spec, "the recipe gives no batch", "add 'batch = 8', the rows of a micro-batch, to the recipe");
  if (!recipe.length) return data_error(spec, "the recipe gives no length", "add 'length = 512', the positions of a row, to the recipe");
  const BatchLayout layout{*recipe.batch, *recipe.length};
  TRY_STATUS(check_layout(spec, layout));
  return layout;
}

Status check_layout(const DataSpec& spec, const BatchLayout& layout) {
  if (layout.rows < 1) return data_error(spec, "a batch of " + std::to_string(layout.rows) + " rows; it needs at least 1");
  if (layout.length < 1) return data_error(spec, "a length of " + std::to_string(layout.length) + " positions; it needs at least 1");
  if (layout.length > INT32_MAX / layout.rows) {
    return data_error(spec, "a batch of " + std::to_string(layout.rows) + " rows of " + std::to_string(layout.length) +
                                " positions is more than 2^31 tokens");
  }
  return ok();
}

}  // namespace galley
