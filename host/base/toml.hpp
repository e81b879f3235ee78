// Reads and writes TOML as plain data.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

#include "host/base/value.hpp"

namespace galley {

/// Booleans, integers, numbers, strings, arrays and tables; a date or a time is an empty table.
Value toml_value(const toml::node& node);

/// Puts the value into a table under the key. What TOML has no word for (nil, in lists and tables too) is left out.
void put(toml::table& table, const std::string& key, const Value& value);

/// Returns the table with all its keys and strings, at any depth, changed by the function.
toml::table with_texts(const toml::table& table, std::string (*made)(std::string_view));

}  // namespace galley
