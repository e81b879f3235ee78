#include "host/recipe/fields.hpp"

#include "host/recipe/language.hpp"

namespace galley {
namespace {

const Table kNothing;
const EntryLines kNoLines;

OptionContext context_of(Place place, const EntryLines& lines, std::string owner, std::string prefix) {
  OptionContext context;
  context.place = [place = std::move(place), &lines](const std::string& name) {
    const auto line = lines.find(name);
    return line == lines.end() ? place : Place{place.file, line->second};
  };
  context.owner = std::move(owner);
  context.prefix = std::move(prefix);
  context.show = shown;
  return context;
}

}  // namespace

std::string shown(const Value& value) {
  const Entry* entry = find_entry(value);
  return entry ? entry->kind_name() : value_text(value);
}

Fields::Fields(const Table& table, Place place, const EntryLines& lines, std::string owner, std::string prefix)
    : OptionReader(table, context_of(std::move(place), lines, std::move(owner), std::move(prefix))) {}

Result<std::optional<Fields>> Fields::table(const std::string& name, const std::string& example) const {
  const Value* value = find(name);
  if (!value) return std::optional<Fields>();
  const auto* list = value->as<List>();  // {} may arrive as either
  if (!value->as<Table>() && !(list && list->empty())) return wrong(name, "a table such as " + example);
  return std::optional<Fields>(Fields(list ? kNothing : *value->as<Table>(), place_of(name), kNoLines, "the recipe", name + "."));
}

}  // namespace galley
