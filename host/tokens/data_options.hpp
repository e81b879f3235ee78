// Declares the options of Galley's own kinds of data, data.text { } and the others. Those of a plugin's kinds are in its manifest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/recipe/declared.hpp"

namespace galley {

/// Returns the kinds, by name.
const std::vector<Declared>& declared_data();
/// Returns one of them, which must be there.
const Declared& declared_data(std::string_view kind);
/// Returns their names, "text".
std::vector<std::string> own_data_kinds();

}  // namespace galley
