// Adds a recipe's tokens to the files of a tokenizer.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host/base/result.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Returns a tokenizer.json with these tokens. One that is among its added tokens stays what it is, one of the vocabulary keeps its id,
/// and others get those after the last. As in transformers, a token that is not special is looked for in the normalized text. `origin`
/// begins an error's text.
Result<std::string> with_new_tokens(std::string tokenizer, std::span<const NewToken> tokens, const std::string& origin);

/// Does so in the files that are saved with a model, by name: also in tokenizer_config.json and added_tokens.json where these list tokens.
Status add_new_tokens(std::span<const NewToken> tokens, std::vector<std::pair<std::string, std::string>>* files);

/// Returns the added tokens of a tokenizer.json that another, `of`, does not have, in the order of their ids: what with_new_tokens()
/// makes the one of the other by.
Result<std::vector<NewToken>> tokens_beyond(const std::filesystem::path& tokenizer, const std::filesystem::path& of);

}  // namespace galley
