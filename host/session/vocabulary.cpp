#include "host/session/vocabulary.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include "host/session/study.hpp"
#include "host/tokens/text_codec.hpp"

namespace galley {
namespace {

/// Lists of tokens among options.
class TokenLists {
 public:
  explicit TokenLists(const Recipe& recipe) : recipe_(recipe) {}

  Status number(Table& options, const std::vector<OptionSpec>& specs, const std::function<Place(const std::string&)>& place_of) {
    for (const OptionSpec& spec : specs) {
      const auto given = options.find(spec.name);
      if (given == options.end()) continue;
      if (spec.matches == "tokens" && given->second.as<std::string>()) given->second = Value(List{given->second});
      auto* list = std::get_if<List>(&given->second);
      for (size_t i = 0; list && i < list->size(); ++i) {
        if (spec.matches == "tokens") TRY_STATUS(number((*list)[i], spec.name, place_of));
        if (auto* table = std::get_if<Table>(&(*list)[i]))
          TRY_STATUS(number(*table, spec.fields, [&](const std::string&) { return place_of(spec.name); }));
      }
    }
    return ok();
  }

 private:
  Status number(Value& token, const std::string& option, const std::function<Place(const std::string&)>& place_of) {
    const auto* text = token.as<std::string>();
    if (!text) return ok();
    if (!codec_) codec_.emplace(TRY(TextCodec::open(text_spec(recipe_), recipe_)));
    const TokenId id = codec_->find(*text);
    if (id < 0)
      return recipe_error(place_of(option).text() + ": '" + option + "': the tokenizer has no token '" + *text + "'",
                          "add it: model { …, add_special_tokens = { … } }");
    token = Value(int64_t{id});
    return ok();
  }

  const Recipe& recipe_;
  std::optional<TextCodec> codec_;
};

bool lists_tokens(const Table& options, const std::vector<OptionSpec>& specs) {
  return std::ranges::any_of(specs, [&](const OptionSpec& spec) {
    const bool tokens = spec.matches == "tokens" || std::ranges::find(spec.fields, "tokens", &OptionSpec::matches) != spec.fields.end();
    return tokens && options.contains(spec.name);
  });
}

}  // namespace

Status grow_vocabulary(const Recipe& recipe, ModelConfig& model) {
  if (recipe.model.new_tokens.empty()) return ok();
  const std::string place = recipe.model.place.text();
  if (model.gguf)
    return recipe_error(place + ": tokens cannot be added to a GGUF file", "take the model's folder in Hugging Face's format");
  const TextCodec codec = TRY(TextCodec::open(text_spec(recipe), recipe));
  auto* rows = std::get_if<int64_t>(&model.config["vocab_size"]);
  if (!rows) return recipe_error(place + ": tokens are added, and " + model.origin + " has no 'vocab_size' to count them in");
  model.added_rows = std::max<int64_t>(0, codec.vocabulary() - *rows);
  *rows += model.added_rows;
  return ok();
}

Status number_tokens(Recipe& recipe, const Plugins& plugins) {
  TokenLists lists(recipe);
  for (Use& use : recipe.uses)
    TRY_STATUS(lists.number(use.options, TRY(plugins.strategy(use.name, use.place)).spec->options,
                            [&](const std::string& option) { return use.place_of(option); }));
  return ok();
}

std::string untrained_rows(const Study& study) {
  if (study.model.added_rows == 0 || study.program.trained.empty()) return {};
  for (size_t i = 0; i < study.loaded.size(); ++i)
    if (lists_tokens(study.recipe.uses[i].options, study.loaded[i]->spec().options)) return {};
  for (const Trained& trained : study.program.trained)
    if (const galley_tensor t = study.draft->graph.find(trained.name); t && study.draft->graph.tensor(t).source.added_rows > 0) return {};
  return study.recipe.model.place.text() +
         ": the rows of the tokens that are added stay the mean of the others, because the tables of the vocabulary are frozen; an "
         "adapter trains rows by its trainable_token_indices, and tables by its modules_to_save";
}

}  // namespace galley
