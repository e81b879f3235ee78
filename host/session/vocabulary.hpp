// What a recipe says of tokens: those that it adds to the model, and those that strategies' options name.
#pragma once

#include <string>

#include "host/base/result.hpp"
#include "host/family/family.hpp"
#include "host/plugins/loader.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

struct Study;

/// Gives a model's configuration a vocabulary that has every token which the recipe adds.
Status grow_vocabulary(const Recipe& recipe, ModelConfig& model);

/// Tokens that options of strategies name by their texts become ids.
Status number_tokens(Recipe& recipe, const Plugins& plugins);

/// Says that rows of added tokens stay what they begin as; "" if something trains them.
std::string untrained_rows(const Study& study);

}  // namespace galley
