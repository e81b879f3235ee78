// Reads a recipe as data: what its Lua file returns, checked for form. Options of strategies are checked later by their manifests, those of
// data by the data layer.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/base/fill.hpp"
#include "host/base/result.hpp"
#include "host/base/schedule.hpp"
#include "host/base/value.hpp"

namespace galley {

class Confinement;
class RecipeScript;

/// A positional entry of the recipe: use "name" { options }.
struct Use {
  std::string name;
  Table options;
  Place place;
  std::map<std::string, int> lines;  ///< lines of options that are not in the first line

  /// Returns the place where an option was written, as far as that can be told.
  Place place_of(const std::string& option) const {
    const auto line = lines.find(option);
    return line == lines.end() ? place : Place{place.file, line->second};
  }
};

/// A token that a recipe adds to a model's.
struct NewToken {
  std::string text;
  bool special = false;
};

/// model { path = …, init = "file" | "random", family = … } or model { family = …, config = { … } } (always random).
struct ModelSpec {
  std::filesystem::path path;            ///< resolved, absolute; empty if a family and a configuration are given
  std::string family;                    ///< beside a path, for a config.json without model_type; may be empty then
  Table config;                          ///< the configuration given in the recipe
  std::string task;                      ///< the model's task, in the family's words; "": what its config.json says
  int64_t labels = 0;                    ///< the number of labels; 0: what its config.json says
  std::vector<std::string> label_names;  ///< their names by number; empty: what its config.json says, or LABEL_0 and so on
  std::vector<NewToken> new_tokens;      ///< that the tokenizer and the tables of the vocabulary get besides, in the order of their ids
  bool random = false;                   ///< initialize instead of loading
  Place place;
};

/// What the model learns from, in terms of data. The family's task and the model's configuration decide it.
struct Learning {
  std::string task;                      ///< "causal-lm"
  bool learns = true;                    ///< false: there is no loss
  Fill labels = Fill::NextTokens;        ///< the labels in the loss
  int64_t classes = 0;                   ///< labels of tokens and rows are below this
  bool several = false;                  ///< a row may have several labels
  std::map<std::string, int64_t> names;  ///< names of labels
  int32_t start = 0, padding = 0;        ///< the tokens that begin a target, and come after it
  bool counts_tokens = false;            ///< if a batch gives no positions, its tokens are counted, not its columns
  /// Returns the name of a label, or "LABEL_3".
  std::string name_of(int64_t label) const {
    for (const auto& [name, number] : names)
      if (number == label) return name;
    return "LABEL_" + std::to_string(label);
  }
};

/// Says whether a recipe may name any file that its user can read, or only files of its own folder, and those that --set gives.
enum class Confine : uint8_t { No, Yes };

/// data.KIND { options }
struct DataSpec {
  std::string kind;  ///< "text"; one of those that there are, once the recipe is studied
  Table options;     ///< "files", "path", "validation" and a "tokenizer" that are files already resolved to absolute paths (strings)
  Place place;
  std::vector<DataSpec> parts = {};          ///< the parts of a mix
  std::optional<size_t> chat_template = {};  ///< if "template" is a function of the recipe: its number for RecipeScript::function()
};

/// validate = { every = N, start = true, patience = N, min_delta = X }
struct Validation {
  int64_t every = 0;     ///< steps; 0: never
  bool start = false;    ///< before the first step too
  bool end = false;      ///< after the last step, whatever `every` says: for a run whose steps follow from a budget
  int64_t patience = 0;  ///< the run ends after so many validations without a loss that is lower by more than min_delta; 0: it does not
  double min_delta = 0;
};

/// evaluate = { prompts = FILE, match = …, every = N, start = true, samples = N, tokens = N }
struct Evaluation {
  std::string prompts;               ///< a file; "": no texts are generated
  Place place;                       ///< of `prompts`
  std::string match;                 ///< "exact", "rouge-l" or a Lua pattern; "": the function says, if there is one
  std::optional<size_t> function{};  ///< the number of the recipe's function, for RecipeScript::function()
  int64_t every = 0;                 ///< steps; 0: at the end only
  bool start = false;                ///< before the first step too
  int64_t samples = 8;               ///< prompts, from the first on; 0: all
  int64_t tokens = 128;              ///< the most of a text
  bool int8_cache = false;           ///< keys and values are kept in 8 bit
};

/// save = { every = N, keep = N, final = false, best = true, dtype = "bf16" }
struct Saving {
  int64_t every = 0;  ///< steps; 0: only at the end
  int64_t keep = 2;   ///< how many resume states stay
  bool final = true;  ///< false: nothing is saved at the end
  bool best = false;  ///< the state of the lowest validation loss stays, and the model is exported from it
  std::string dtype;  ///< "f32", "bf16" or "f16" for the model or adapter; "": that in which its numbers are kept
};

/// one_of { … } in a recipe, and which of its entries was taken.
struct Offer {
  Place place;
  size_t count = 0, chosen = 1;
};

/// What a recipe is read from, beside the files that it names: from the same, the same is read again.
/// How long a run is: one of the two, or neither.
struct RunLength {
  int64_t steps = 0;
  double epochs = 0;
  bool given() const { return steps > 0 || epochs > 0; }
};

struct RecipeInput {
  std::map<std::string, std::string> sets = {};      ///< --set name=value
  std::vector<std::string> given_uses = {};          ///< --use: strategies beside the recipe's own, as it would write them
  std::map<int, size_t> choices = {};                ///< by the line of a one_of, which of its entries is taken, from 1; none: the first
  std::string text = {};                             ///< the file's bytes, copied into the run directory
  std::map<std::string, std::string> modules = {};   ///< the files it required, by their real path: a run can tell when they change
  std::map<std::string, std::string> required = {};  ///< their real paths by what they were required as: "lib/common.lua"
  std::filesystem::path library = {};                ///< Galley's own modules for `require`; "": none
  std::filesystem::path directory = {};              ///< paths in `sets` are relative to it; "": the current directory
  Confine confine = Confine::No;                     ///< --confine
  RunLength longer = {};                             ///< of a run that went on after its end, instead of what the recipe says

  /// Returns the text, and what of the command line decides beside it what the recipe says.
  std::string with_arguments() const;
};

struct Recipe : RecipeInput {
  std::filesystem::path path;  ///< absolute
  ModelSpec model;
  DataSpec data;
  std::optional<int64_t> batch;          ///< rows of a micro-batch; data.batch brings its own
  std::optional<int64_t> length;         ///< positions of a row
  std::optional<int64_t> target_length;  ///< positions of the target, if the model has one; none: as many as `length`
  Learning learning;                     ///< set by whoever has read the model's configuration
  int64_t steps = 0;                     ///< 0: `epochs` decide, once the data has been prepared
  double epochs = 0;                     ///< 0: the recipe says steps
  Place epochs_place;                    ///< the place of epochs
  uint64_t seed = 1;
  uint64_t split = 1;  ///< the seed that decides which documents are held out, and how they are masked
  Validation validate;
  Evaluation evaluate;
  Saving save;
  bool deterministic = true;         ///< false: kernels may be faster, and their bytes may differ from run to run
  bool tune = false;                 ///< kernels may measure before the first step which way is the fastest
  int64_t lanes = 0;                 ///< shares of a window's micro-batches; 0: as many as processes
  int64_t together = 1;              ///< neighbours that compute the same micro-batches
  std::string axis;                  ///< their axis; "": there is none
  int64_t head_rows = 0;             ///< rows of one chunk of the head and loss; 0: the host chooses
  std::vector<std::string> kernels;  ///< plugins whose kernels may do ops of others
  std::vector<Use> uses;
  std::string name;                                ///< the recipe as the user typed it
  std::shared_ptr<const Confinement> confinement;  ///< the files that may be read while the recipe is used; null: any
  std::vector<std::string> warnings;               ///< warnings of what is legal and may not be meant, with the line
  std::vector<Offer> offers;                       ///< in the order in which the recipe ran them
  std::shared_ptr<RecipeScript> script;            ///< its Lua, for with_steps(); null where the recipe says steps
};

/// Text and modules are those of an earlier reading, and replace the files; without a text, the file is read.
struct RecipeOptions : RecipeInput {
  std::shared_ptr<const Confinement> within = {};  ///< replaces the recipe's folder and `sets` for --confine; may be null
  int64_t steps = 0;                               ///< of a resumed run, the number of steps in its epochs; 0: not known yet
  double seconds = 1;                              ///< Lua's processor time, all of it
  size_t bytes = 64u << 20;                        ///< Lua's memory
};

/// The most steps that a run can have.
inline constexpr int64_t kMostSteps = 10'000'000;

/// Runs the recipe in the sandbox. Relative paths in it are relative to its folder, even if `text` is given and the file is
/// gone. Errors have exit code Recipe and a cause that begins with "<path as given>:<line>: ", or with the path alone where no line is
/// known.
/// [main-thread]
Result<Recipe> read_recipe(const std::filesystem::path& path, const RecipeOptions& options);

/// Returns a recipe whose epochs are so many steps, with its schedules and warnings for them: the functions of the step are called, and the
/// recipe is not run again. Needs its `script`. Errors are those of read_recipe(). [main-thread]
Result<Recipe> with_steps(const Recipe& recipe, int64_t steps);

/// Says how long the runs of a comparison are, if it does not say steps: one of the two.
struct Budget {
  int64_t tokens = 0;  ///< tokens that each run sees: positions of rows, padding included
  double seconds = 0;  ///< seconds that the steps of each run take

  bool operator==(const Budget&) const = default;
};

/// The difference of losses that matters in a comparison: in nats, or as a share of what training has gained.
struct Margin {
  double nats = 0;  ///< 0: the share counts
  double share = 0.02;
};
/// Parses "0.01" or "5%"; returns nothing if the text is neither.
std::optional<Margin> margin_named(const std::string& text);
inline constexpr const char* kMarginExpected = "nats of loss, such as 0.01, or a share of what training gains, such as \"5%\"";

/// A recipe file that returns compare { … }.
struct CompareSpec {
  std::vector<std::string> variants;  ///< by name, the baseline first
  std::vector<int64_t> seeds;         ///< each once
  int64_t turns = 1;
  bool sequential = false;
  bool resplit = false;  ///< each seed holds out other documents
  Margin margin;
  std::optional<Budget> budget;  ///< none: the recipe says steps
};

/// Reads what the file compares; returns nothing if it returns one recipe. read_recipe() then takes a variant by the argument "variant",
/// and one of the seeds by the argument "seed", which any recipe takes. What is held out follows from the comparison's own seed, or from
/// the argument "split", which any recipe takes, too. Under a budget the argument "budget" is the number of steps; "trial" is that of a run
/// that is only timed: it neither validates nor saves a model. [main-thread]
Result<std::optional<CompareSpec>> read_compare(const std::filesystem::path& path, const RecipeOptions& options);

}  // namespace galley
