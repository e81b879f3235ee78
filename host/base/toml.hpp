// TOML as plain data.
#pragma once

#include <toml++/toml.h>

#include "host/base/value.hpp"

namespace galley {

/// Booleans, integers, numbers, strings, arrays and tables; a date or a time is an empty table.
Value toml_value(const toml::node& node);

}  // namespace galley
