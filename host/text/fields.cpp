#include "host/text/fields.hpp"

namespace galley {

Error Part::wrong(const std::string& what) const { return recipe_error(where_ + ": " + what); }

Error Part::unsupported(std::initializer_list<const char*> known) const {
  std::string list;
  for (const char* k : known) list += (list.empty() ? "" : ", ") + std::string(k);
  return recipe_error(where_ + ": type '" + type_ + "' is not supported", "there is: " + list);
}

Result<Part> Part::of(const Value& value, const std::string& where) {
  Part out = TRY(plain(value, where));
  TRY(out.text("type"));
  return out;
}

Result<Part> Part::plain(const Value& value, const std::string& where) {
  const Table* table = value.as<Table>();
  if (!table) return recipe_error(where + " is a " + value.type_name() + " instead of an object");
  Part out(*table, where);
  if (out.field("type")) out.type_ = TRY(out.text("type"));
  return out;
}

OptionReader Part::options() const {
  return {*table_, {.place = [where = where_](const std::string&) { return Place{where, 0}; }}};
}

const Value* Part::field(const std::string& name) const { return options().find(name); }

Result<std::string> Part::text(const std::string& name) const {
  return *TRY(options().take({.name = name, .type = OptionType::String, .required = true})).as<std::string>();
}

Result<bool> Part::flag(const std::string& name, bool otherwise) const { return TRY(options().boolean(name)).value_or(otherwise); }

Result<int64_t> Part::integer(const std::string& name, int64_t otherwise) const { return TRY(options().integer(name)).value_or(otherwise); }

Result<Part::Pattern> Part::pattern(const std::string& name) const {
  const Value* value = field(name);
  const Table* table = value ? value->as<Table>() : nullptr;
  for (const char* kind : {"String", "Regex"}) {
    if (!table || !table->contains(kind)) continue;
    if (const auto* text = table->at(kind).as<std::string>()) return Pattern{*text, kind[0] == 'R'};
  }
  return wrong("'" + name + "' has to be { \"String\": … } or { \"Regex\": … }");
}

Result<const List*> Part::list(const std::string& name) const {
  const Value* value = field(name);
  if (!value || !value->as<List>()) return wrong("'" + name + "' has to be a list");
  return value->as<List>();
}

Result<const Table*> Part::table(const std::string& name) const {
  const Value* value = field(name);
  if (!value || !value->as<Table>()) return wrong("'" + name + "' has to be an object");
  return value->as<Table>();
}

}  // namespace galley
