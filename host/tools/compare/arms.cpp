#include "host/tools/compare/arms.hpp"

#include <algorithm>
#include <utility>

#include "host/recipe/recipe.hpp"
#include "host/session/several.hpp"

namespace galley {
namespace {

Error of_arm(const std::string& name, Error error) {
  error.cause = "arm '" + name + "': " + error.cause;
  return error;
}

/// The name of the file, with what a folder's name cannot hold replaced.
std::string name_of(const std::filesystem::path& recipe) {
  std::string out = recipe.stem().string().substr(0, 60);
  for (char& c : out)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '-';
  return out;
}

/// With as many steps as see the budget's tokens, or, where seconds are to be measured, with one.
Result<Arm> of_budget(const Arm& arm, const Budget& budget, int64_t seed, StudyOptions options) {
  const auto warn = std::exchange(options.warn, {});  // schedules of a run of one step
  Arm out = TRY(planned_arm(arm, {{"budget", "1"}}, seed, options));
  const Program& program = out.study->program;
  if (budget.tokens == 0) return out;
  const int64_t a_step = program.window_tokens > 0 ? program.window_tokens : program.rows * program.length * program.micro_batches;
  const int64_t steps = budget.tokens / a_step + (budget.tokens % a_step > 0);
  if (steps > kMostSteps)
    return recipe_error(out.study->recipe.name + ": " + std::to_string(budget.tokens) + " tokens are " + std::to_string(steps) +
                        " steps, and a run has at most " + std::to_string(kMostSteps));
  options.warn = warn;
  return planned_arm(arm, {{"budget", std::to_string(steps)}}, seed, options);
}

/// Rows of a chunk of the head and loss: all of a micro-batch's, if it may have so many.
int64_t chunk_of(const Program& program) {
  return std::min(program.head_rows, program.rows * (program.target_length > 0 ? program.target_length : program.length));
}

/// Studies the one process that trains in the place of several.
Result<std::shared_ptr<const Study>> in_their_place(const Study& planned, const std::filesystem::path& recipe, StudyOptions options) {
  const std::string one = "one process, which trains in the place of " + std::to_string(planned.program.ranks) + ": ";
  options.warn = {};         // it has been told
  options.memory_limit = 0;  // of each of them
  options.lanes = {.lanes = planned.program.lanes};
  Result<std::unique_ptr<Study>> made = study(recipe, options);
  if (!made) return Error{made.error().exit, one + made.error().cause, made.error().hint};
  const int64_t rows = chunk_of((*made)->program), theirs = chunk_of(planned.program);
  if (rows != theirs)
    return recipe_error(one + "it takes the head and loss in chunks of " + std::to_string(rows) + " rows, and they in chunks of " +
                            std::to_string(theirs) + ", so that sums differ",
                        "write head_rows = " + std::to_string(theirs) + " into the recipe");
  return std::shared_ptr<const Study>(std::move(*made));
}

}  // namespace

Result<Arm> planned_arm(const Arm& arm, const std::map<std::string, std::string>& sets, int64_t seed, const StudyOptions& options) {
  Arm out = arm;
  for (const auto& [name, value] : sets) out.sets[name] = value;
  StudyOptions of_arm = options;
  of_arm.sets = out.sets;
  of_arm.given_uses = out.given_uses;
  of_arm.sets["seed"] = std::to_string(seed);
  const bool several = options.lanes.ranks > 1;
  if (several && options.runs) {
    StudyOptions of_many = of_arm;
    of_many.runs = false;
    out.planned = TRY(study_of_most(out.recipe, std::move(of_many)));
    out.study = TRY(in_their_place(*out.planned, out.recipe, std::move(of_arm)));
  } else {
    out.study = out.planned = TRY(study(out.recipe, of_arm));
  }
  out.lanes = several || options.lanes.lanes > 0 ? out.study->program.lanes : 0;
  return out;
}

Result<Comparison> read_comparison(const std::vector<std::string>& recipes, const CompareOptions& options, Refused refused) {
  Comparison out;
  out.seeds = {1, 2, 3, 4, 5};
  out.turns = 4;
  out.ranks = options.study.lanes.ranks;
  for (const auto& [name, instead] :
       {std::pair("seed", "give the seeds: --seeds 1,2,3,4,5"), std::pair("variant", "it trains all variants"),
        std::pair("split", "it holds out the same documents for all seeds; resplit = true in the comparison holds out others for each"),
        std::pair("budget", "write budget = { tokens = 1e6 } into the recipe"),
        std::pair("trial", "write budget = { seconds = 60 } into the recipe")})
    if (options.study.sets.contains(name))
      return recipe_error(std::string("galley compare: --set ") + name + " is what differs between the runs of a comparison", instead);
  std::string split;  // of recipes that are no comparison: what the first one holds out, all of them do
  for (const std::string& recipe : recipes) {
    const auto spec = TRY(read_compare(recipe, recipe_options(options.study)));
    if (!spec) {
      if (split.empty()) split = std::to_string(TRY(read_recipe(recipe, recipe_options(options.study))).seed);
      out.arms.push_back({name_of(recipe), recipe, options.study.sets, options.study.given_uses, nullptr, {}});
      out.arms.back().sets["split"] = split;
      continue;
    }
    if (recipes.size() > 1)
      return recipe_error("galley compare: " + recipe + " is a comparison itself, and cannot be an arm of another one",
                          "give it alone, or several recipes that each return recipe { … }");
    out.seeds = spec->seeds;
    out.turns = spec->turns;
    out.sequential = spec->sequential;
    out.margin = spec->margin;
    out.budget = spec->budget;
    if (out.ranks > 1 && spec->budget && spec->budget->seconds > 0)
      return recipe_error(
          "galley compare: " + recipe + " has a budget in seconds, which one process would measure, and not " + std::to_string(out.ranks),
          "give it steps or a budget of tokens, or leave --ranks out");
    for (const std::string& variant : spec->variants) {
      out.arms.push_back({variant, recipe, options.study.sets, options.study.given_uses, nullptr, {}});
      out.arms.back().sets["variant"] = variant;
    }
  }
  if (out.arms.size() < 2)
    return recipe_error("galley compare: " + recipes.front() + " is one recipe, and there is nothing to compare it with",
                        "give a second recipe, or one that returns compare { … }; galley recipe compare shows how it is written");
  if (!options.seeds.empty()) out.seeds = options.seeds;
  if (options.turns > 0) out.turns = options.turns;
  if (!options.margin.empty()) {
    const auto margin = margin_named(options.margin);
    if (!margin) return recipe_error("--margin '" + options.margin + "': expected " + kMarginExpected);
    out.margin = *margin;
  }
  for (size_t i = 0; i < out.arms.size(); ++i) {
    Arm& arm = out.arms[i];
    for (size_t j = 0; j < i; ++j)
      if (out.arms[j].name == arm.name)
        return recipe_error("galley compare: two arms are called '" + arm.name + "'", "give the recipes' files different names");
    Result<Arm> made =
        out.budget ? of_budget(arm, *out.budget, out.seeds.front(), options.study) : planned_arm(arm, {}, out.seeds.front(), options.study);
    if (!made && refused == Refused::Error) return of_arm(arm.name, made.error());
    if (!made) {
      arm.refusal = made.error().cause;
      continue;
    }
    arm = std::move(*made);
    if (refused == Refused::Kept) continue;
    const Recipe& recipe = arm.study->recipe;
    if (recipe.epochs > 0)
      return recipe_error("arm '" + arm.name + "': " + recipe.epochs_place.text() + ": a comparison needs the number of steps",
                          "write steps = N instead of epochs");
    if (!recipe.save.final || recipe.validate.patience > 0)
      return recipe_error("arm '" + arm.name + "': " + recipe.name + ": a comparison needs the model that the last step leaves",
                          recipe.save.final ? "leave out validate.patience" : "leave out save.final = false");
  }
  return out;
}

std::filesystem::path run_of(const std::filesystem::path& directory, const Arm& arm, int64_t seed) {
  return directory / "arms" / arm.name / ("seed-" + std::to_string(seed));
}

}  // namespace galley
