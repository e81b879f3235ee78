#include "host/tokens/tokenizer/fields.hpp"

#include "host/tokens/tokenizer/unicode.hpp"

namespace galley {

Error JsonObject::wrong(const std::string& what) const { return recipe_error(where_ + ": " + what); }

Error JsonObject::unsupported(std::initializer_list<const char*> known) const {
  std::string list;
  for (const char* k : known) list += (list.empty() ? "" : ", ") + std::string(k);
  return recipe_error(where_ + ": type '" + type_ + "' is not supported", "there is: " + list);
}

Result<JsonObject> JsonObject::of(const Value& value, const std::string& where) {
  JsonObject out = TRY(plain(value, where));
  TRY(out.text("type"));
  return out;
}

Result<JsonObject> JsonObject::plain(const Value& value, const std::string& where) {
  const Table* table = value.as<Table>();
  if (!table) return recipe_error(where + " is a " + value.type_name() + " instead of an object");
  JsonObject out(*table, where);
  if (out.field("type")) out.type_ = TRY(out.text("type"));
  return out;
}

OptionReader JsonObject::options() const {
  return {*table_, {.place = [where = where_](const std::string&) { return Place{where, 0}; }}};
}

const Value* JsonObject::field(const std::string& name) const { return options().find(name); }

Result<std::string> JsonObject::text(const std::string& name) const {
  return *TRY(options().take({.name = name, .type = OptionType::String, .required = true})).as<std::string>();
}

Result<std::string> JsonObject::character(const std::string& name) const {
  std::string out = TRY(text(name));
  if (out.empty() || next_code_point(out).bytes != out.size()) return wrong("'" + name + "' has to be one character");
  return out;
}

Result<bool> JsonObject::flag(const std::string& name, bool otherwise) const { return TRY(options().boolean(name)).value_or(otherwise); }

Result<int64_t> JsonObject::integer(const std::string& name, int64_t otherwise) const {
  return TRY(options().integer(name)).value_or(otherwise);
}

Result<JsonObject::Pattern> JsonObject::pattern(const std::string& name) const {
  const Value* value = field(name);
  const Table* table = value ? value->as<Table>() : nullptr;
  for (const char* kind : {"String", "Regex"}) {
    if (!table || !table->contains(kind)) continue;
    if (const auto* text = table->at(kind).as<std::string>()) return Pattern{*text, kind[0] == 'R'};
  }
  return wrong("'" + name + "' has to be { \"String\": … } or { \"Regex\": … }");
}

Result<const List*> JsonObject::list(const std::string& name) const {
  const Value* value = field(name);
  if (!value || !value->as<List>()) return wrong("'" + name + "' has to be a list");
  return value->as<List>();
}

Status JsonObject::each(const std::string& name, const std::function<Status(const Value&, const std::string&)>& add) const {
  const List& values = *TRY(list(name));
  for (size_t i = 0; i < values.size(); ++i) TRY_STATUS(add(values[i], where_ + "." + name + "[" + std::to_string(i) + "]"));
  return ok();
}

Result<const Table*> JsonObject::table(const std::string& name) const {
  const Value* value = field(name);
  if (!value || !value->as<Table>()) return wrong("'" + name + "' has to be an object");
  return value->as<Table>();
}

}  // namespace galley
