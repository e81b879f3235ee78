#include "host/tokens/spec.hpp"

namespace galley {

Error data_error(const DataSpec& spec, const std::string& cause, std::string hint) {
  const bool written = spec.place.line > 0;  // else it is a folder that needs no data
  return recipe_error(spec.place.text() + ": " + (written ? "data." + spec.kind + ": " : std::string()) + cause, std::move(hint));
}

OptionReader options_of(const DataSpec& spec) {
  return {spec.options, {.place = [place = spec.place](const std::string&) { return place; }, .owner = "data." + spec.kind}};
}

}  // namespace galley
