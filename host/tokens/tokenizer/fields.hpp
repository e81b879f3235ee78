// Reads the objects of a tokenizer.json: a field of the wrong type is an error that names it and its place.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "host/base/option_reader.hpp"
#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

/// An object of the file, and where it stands there ("pre_tokenizer.pretokenizers[1]").
class JsonObject {
 public:
  /// One of several kinds, which its "type" tells apart.
  static Result<JsonObject> of(const Value& value, const std::string& where);
  /// One that may have no "type".
  static Result<JsonObject> plain(const Value& value, const std::string& where);

  const std::string& type() const { return type_; }
  const std::string& where() const { return where_; }
  /// The value of a field; null when it is absent or null.
  const Value* field(const std::string& name) const;
  Result<std::string> text(const std::string& name) const;
  /// Returns a string of one character.
  Result<std::string> character(const std::string& name) const;
  Result<bool> flag(const std::string& name, bool otherwise) const;
  Result<int64_t> integer(const std::string& name, int64_t otherwise) const;
  /// { "String": … } or { "Regex": … }; a string as a regular expression that matches just it.
  struct Pattern {
    std::string text;
    bool regex = false;
  };
  Result<Pattern> pattern(const std::string& name) const;
  Result<const List*> list(const std::string& name) const;
  Result<const Table*> table(const std::string& name) const;
  /// Calls `add` with each element of a list, and its place.
  Status each(const std::string& name, const std::function<Status(const Value&, const std::string&)>& add) const;

  Error wrong(const std::string& what) const;
  Error unsupported(std::initializer_list<const char*> known) const;

 private:
  OptionReader options() const;
  JsonObject(const Table& table, std::string where) : table_(&table), where_(std::move(where)) {}
  const Table* table_;
  std::string where_, type_;
};

}  // namespace galley
