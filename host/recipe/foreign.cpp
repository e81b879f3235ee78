#include "host/recipe/foreign.hpp"

#include <toml++/toml.h>

#include "host/base/file.hpp"

namespace galley {

ForeignName foreign_name(const std::filesystem::path& library, const std::string& name) {
  const Result<std::string> text = library.empty() ? Result<std::string>("") : read_text(library / "other_trainers.toml");
  const toml::parse_result names = toml::parse(text ? *text : "");
  if (!names) return {};
  const auto known = names.table()[name];
  return {known["argument"].value_or(std::string()), known["written"].value_or(std::string())};
}

}  // namespace galley
