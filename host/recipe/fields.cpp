#include "host/recipe/fields.hpp"

namespace galley {
namespace {

const Table kNothing;
const EntryLines kNoLines;

OptionContext context_of(const Language& language, Place place, const EntryLines& lines, std::string owner, std::string prefix) {
  OptionContext context;
  context.place = [place = std::move(place), &lines](const std::string& name) {
    const auto line = lines.find(name);
    return line == lines.end() ? place : Place{place.file, line->second};
  };
  context.owner = std::move(owner);
  context.prefix = std::move(prefix);
  context.show = [&language](const Value& value) { return shown(language, value); };
  return context;
}

}  // namespace

std::string shown(const Language& language, const Value& value) {
  const Entry* entry = language.find(value);
  return entry ? entry->kind_name() : value_text(value);
}

Fields::Fields(const Language& language, const Table& table, Place place, const EntryLines& lines, std::string owner, std::string prefix)
    : OptionReader(table, context_of(language, std::move(place), lines, std::move(owner), std::move(prefix))), language_(language) {}

Result<std::optional<Fields>> Fields::table(const std::string& name, const std::string& example) const {
  const Value* value = find(name);
  if (!value) return std::optional<Fields>();
  const auto* list = value->as<List>();  // {} may arrive as either
  if (!value->as<Table>() && !(list && list->empty())) return wrong(name, "a table such as " + example);
  return std::optional<Fields>(
      Fields(language_, list ? kNothing : *value->as<Table>(), place_of(name), kNoLines, "the recipe", name + "."));
}

}  // namespace galley
