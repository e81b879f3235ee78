#include "host/data/spec.hpp"

namespace galley {

Error data_error(const DataSpec& spec, const std::string& cause, std::string hint) {
  return recipe_error(spec.place.text() + ": data." + spec.kind + ": " + cause, std::move(hint));
}

OptionReader options_of(const DataSpec& spec) {
  return {spec.options, {.place = [place = spec.place](const std::string&) { return place; }, .owner = "data." + spec.kind}};
}

Result<BatchLayout> recipe_layout(const DataSpec& spec, const Recipe& recipe) {
  if (!recipe.batch) return data_error(spec, "the recipe gives no batch", "add 'batch = 8', the rows of a micro-batch, to the recipe");
  if (!recipe.length) return data_error(spec, "the recipe gives no length", "add 'length = 512', the positions of a row, to the recipe");
  const BatchLayout layout{*recipe.batch, *recipe.length};
  TRY_STATUS(check_layout(spec, layout));
  return layout;
}

Status check_layout(const DataSpec& spec, const BatchLayout& layout) {
  if (layout.rows < 1) return data_error(spec, "a batch of " + std::to_string(layout.rows) + " rows; it needs at least 1");
  if (layout.length < 1) return data_error(spec, "a length of " + std::to_string(layout.length) + " positions; it needs at least 1");
  if (layout.length > INT32_MAX / layout.rows) {
    return data_error(spec, "a batch of " + std::to_string(layout.rows) + " rows of " + std::to_string(layout.length) +
                                " positions is more than 2^31 tokens");
  }
  return ok();
}

}  // namespace galley
