#include "host/sources/layout.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "host/tokens/spec.hpp"

namespace galley {

Result<BatchLayout> recipe_layout(const DataSpec& spec, const Recipe& recipe) {
  if (!recipe.batch) return data_error(spec, "the recipe gives no batch", "add 'batch = 8', the rows of a micro-batch, to the recipe");
  if (!recipe.length) return data_error(spec, "the recipe gives no length", "add 'length = 512', the positions of a row, to the recipe");
  BatchLayout layout{*recipe.batch, *recipe.length};
  if (recipe.learning.labels == Fill::TargetLabels) layout.target_length = recipe.target_length.value_or(layout.length);
  else if (recipe.target_length)
    return data_error(spec, "the recipe gives a target_length, but the model's task '" + recipe.learning.task + "' has no target",
                      "take 'target_length' out of the recipe");
  TRY_STATUS(check_layout(spec, layout));
  return layout;
}

Status check_layout(const DataSpec& spec, const BatchLayout& layout) {
  if (layout.rows < 1) return data_error(spec, "a batch of " + std::to_string(layout.rows) + " rows; it needs at least 1");
  if (layout.length < 1) return data_error(spec, "a length of " + std::to_string(layout.length) + " positions; it needs at least 1");
  if (const int64_t most = std::max(layout.length, layout.target_length); most > INT32_MAX / layout.rows) {
    return data_error(
        spec, "a batch of " + std::to_string(layout.rows) + " rows of " + std::to_string(most) + " positions is more than 2^31 tokens");
  }
  return ok();
}

}  // namespace galley
