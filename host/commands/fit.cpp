#include "host/commands/fit.hpp"

#include <cstdio>

#include "host/base/new_file.hpp"
#include "host/base/shell.hpp"
#include "host/base/units.hpp"
#include "host/commands/run_commands.hpp"
#include "host/tools/compare/fit.hpp"
#include "host/tools/report/live_line.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

/// What trains the recipe that was written: with what was said of the run, and not with what it was planned for.
std::string training_command(const CommandLine& a, int64_t ranks) {
  std::string out = (ranks > 1 ? "mpirun -n " + std::to_string(ranks) + " " : "") + "galley train " + shell_word(a.get("--write"));
  for (const std::string& word : a.words_of({"--set", "--use", "--lanes", "--device", "--plugin-path", "--confine"}))
    out += " " + shell_word(word);
  return out + " --out DIR";
}

}  // namespace

Status command_fit(const CommandLine& a) {
  const std::filesystem::path recipe = a.positional[0];
  StudyOptions options = TRY(study_options(a));
  options.warn = {};
  const int64_t memory = options.memory_limit;  // of the table: a plan that needs more is one of its rows
  options.memory_limit = 0;
  std::optional<NewFile> file;  // opened first, so that one that cannot be written is found before the work
  if (a.has("--write")) file.emplace(TRY(NewFile::named(a.get("--write"))));
  LiveLine live(2);
  const FitResult result = TRY(fit(recipe, options, memory, [&](size_t done, size_t all) {
    const std::string of = std::to_string(all);
    char text[96];
    std::snprintf(text, sizeof text, "planned %*zu of %s combinations", static_cast<int>(of.size()), done, of.c_str());
    if (done == all) live.clear();
    else if (live.due(0.1)) live.show(text);
  }));
  print_lines(fit_table(result, memory, prose_columns(), a.has("--all") ? Rows::All : Rows::Best));
  if (!file) return ok();
  if (result.chosen == SIZE_MAX)
    return {Error{Exit::DoesNotFit, "nothing that " + recipe.string() + " offers fits " + bytes_text(memory), "--write wrote nothing"}};
  TRY_STATUS(file->file().write(TRY(fitted_recipe(recipe, result.variants[result.chosen], memory, result.ranks))));
  TRY_STATUS(file->finish());
  print_lines("written: %s\n  %s\n", a.get("--write").c_str(), training_command(a, result.ranks).c_str());
  return ok();
}

}  // namespace galley
