#include "host/data/source.hpp"

#include <cassert>
#include <vector>

#include "host/base/nearest.hpp"
#include "host/data/batch.hpp"
#include "host/data/random_tokens.hpp"
#include "host/data/spec.hpp"
#include "host/data/text.hpp"

namespace galley {
namespace {

Error unknown_kind(const DataSpec& spec) {
  const std::vector<std::string> kinds = {"text", "batch", "random"};
  return recipe_error(spec.place.text() + ": there is no data." + spec.kind + "; there are data.text, data.batch and data.random",
                      did_you_mean(spec.kind, kinds));
}

Error no_validation(const DataSpec& spec, const Recipe& recipe) {
  return data_error(spec, "the recipe validates every " + std::to_string(recipe.validate_every) + " steps, but nothing is held out for it",
                    spec.kind == "text" ? "give two documents or more and a validation above 0" : "take 'validate' out of the recipe");
}

Result<DataInfo> describe_kind(const DataSpec& spec, const Recipe& recipe) {
  if (spec.kind == "text") return describe_text(spec, recipe);
  if (spec.kind == "batch") return describe_batch(spec, recipe);
  if (spec.kind == "random") return describe_random(spec, recipe);
  return unknown_kind(spec);
}

Result<std::unique_ptr<Source>> open_kind(const DataSpec& spec, const Recipe& recipe, int64_t vocabulary, const Accumulation& micro_batches,
                                          std::span<std::byte> memory) {
  if (spec.kind == "text") return open_text(spec, recipe, micro_batches, memory);
  if (spec.kind == "batch") return open_batch(spec, recipe, vocabulary, micro_batches, memory);
  if (spec.kind == "random") return open_random(spec, recipe, vocabulary, micro_batches);
  return unknown_kind(spec);
}

}  // namespace

Status Source::fill_validation(int64_t, WindowBuffer&) const { return run_error("this data has no validation batches"); }

Result<DataInfo> describe_data(const DataSpec& spec, const Recipe& recipe) {
  DataInfo info = TRY(describe_kind(spec, recipe));
  if (recipe.validate_every > 0 && !info.validation) return no_validation(spec, recipe);
  return info;
}

Status check_data(const DataInfo& info, const DataSpec& spec, int64_t vocabulary, const Accumulation& micro_batches) {
  assert(vocabulary > 0);
  if (info.vocabulary > vocabulary) {
    return data_error(spec, "its tokens have ids up to " + std::to_string(info.vocabulary - 1) + ", but the model's vocabulary has " +
                                std::to_string(vocabulary));
  }
  const int64_t room = micro_batches.fewest() * info.layout.rows;
  if (room < info.window_rows) {
    return data_error(spec,
                      "the batch has " + std::to_string(info.window_rows) + " rows, but a window takes " +
                          std::to_string(micro_batches.fewest()) + " micro-batches of " + std::to_string(info.layout.rows),
                      "a window takes the whole batch: accumulate over " +
                          std::to_string((info.window_rows + info.layout.rows - 1) / info.layout.rows) +
                          " micro-batches, or leave 'batch' out of the recipe");
  }
  return ok();
}

Result<std::unique_ptr<Source>> open_data(const DataSpec& spec, const Recipe& recipe, int64_t vocabulary, const Accumulation& micro_batches,
                                          std::span<std::byte> memory) {
  TRY_STATUS(check_data(TRY(describe_data(spec, recipe)), spec, vocabulary, micro_batches));
  std::unique_ptr<Source> source = TRY(open_kind(spec, recipe, vocabulary, micro_batches, memory));
  if (recipe.validate_every > 0 && source->validation_batches() == 0) return no_validation(spec, recipe);
  return source;
}

}  // namespace galley
