// Everything that happens before a device is opened: recipe, model, data, strategies, program, plan. `galley plan` is this and a table.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/data/source.hpp"
#include "host/family/family.hpp"
#include "host/passes/compile.hpp"
#include "host/plan/plan.hpp"
#include "host/plugins/loader.hpp"
#include "host/plugins/strategy.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Where Galley's own files lie: beside the program, or where `cmake --install` put them.
struct Installation {
  std::filesystem::path plugins;  ///< built-in plugins, one folder each
  FamilyFolders families;
  std::filesystem::path targets;  ///< machines that --target names
};
Installation find_installation();

/// The planner comes after the passes; what it makes can be looked at as well.
inline constexpr PassInfo plan_pass = {"plan", "every tensor at an offset"};

struct StudyOptions {
  std::map<std::string, std::string> sets;         ///< --set name=value
  Confine confine = Confine::No;                   ///< --confine
  bool unconfined = false;                         ///< --unconfined: of a run, whoever made it
  std::shared_ptr<const Confinement> within;       ///< of a folder or a run: what may be read; null: what `confine` says of the recipe
  std::string command;                             ///< the command line, for hints
  std::vector<std::filesystem::path> plugin_path;  ///< --plugin-path
  std::string device = "cpu";                      ///< --device
  std::string target;                              ///< --target, a file or a name; "": this machine
  std::string target_text;                         ///< a run's own target, for resume; "" : not given
  int64_t head_rows = 0;                           ///< likewise; 0: what the recipe says, or chosen
  int64_t steps = 0;                               ///< how many the recipe's epochs are; 0: not known yet
  int64_t memory_limit = 0;                        ///< --memory, bytes; 0: what the machine has where the plan is to be run
  bool shows_unfit = false;                        ///< a plan that does not fit is no error, but is said in Study::unfit
  bool runs = true;                                ///< the plan will be run here: it must fit this machine
  Purpose purpose = Purpose::Train;
  bool merges = false;       ///< Export: --merge
  std::string export_dtype;  ///< Export: --dtype, one that dtype_named() knows; "": what the recipe says
  bool keep_logits = false;
  bool single_row = false;                               ///< Sample: B = 1
  std::string recipe_text;                               ///< the recipe as it was when the run began, for resume; "": read the file
  std::map<std::string, std::string> modules, required;  ///< likewise, of RecipeOptions
  std::function<void(const std::string&)> warn;          ///< gets a line for each plugin that cannot be used; not given: nobody does
  Installation installation = find_installation();
  std::set<std::string> without;  ///< --without: passes of the compiler that are left out
  /// Is told of every pass of the compiler, and of the plan after them; the text prints what it made.
  std::function<void(const PassInfo& pass, const std::function<std::string()>& text)> watch;
  std::vector<std::string> labels;    ///< names of labels, of a run that has found them in its data; empty: they are looked for there
  bool of_run = false;                ///< a run has saved what it has trained: weights that the model's files lack do not begin anew
  std::filesystem::path directory;    ///< what relative paths in `sets` start from; "": the current directory
  std::function<void(Recipe&)> edit;  ///< changes the recipe once it has been read; it then says steps and no epochs
  /// Evaluate: of the parameters that are to be trained, only these are; not given: all of them.
  std::optional<std::set<std::string>> trainable = {};
};

/// Owns all of it. Nothing in it moves once made.
struct Study {
  Installation installation;
  std::string machine;  ///< the ISA of the device that is here, whatever the target
  std::unique_ptr<Plugins> plugins;
  Recipe recipe;
  ModelConfig model;
  DataInfo data;
  std::vector<std::unique_ptr<const LoadedStrategy>> loaded;
  Registered<galley_device> device;  ///< none, if the plan is made for another machine
  Target target;
  std::unique_ptr<Graph> graph;
  Program program;
  Plan plan;
  std::optional<Error> unfit;   ///< with StudyOptions::shows_unfit: that the plan does not fit
  int64_t host_memory() const;  ///< planned bytes of the classes that the host reaches: all lie in its memory
  int64_t peak_memory() const;  ///< planned bytes of the memory that computes: of the host's, or of class 0 where it has its own
  bool built_in(const Plugin& plugin) const;  ///< it came with the program
};

/// Once the data is there: how many steps the recipe's epochs are, and what schedules are then. The source ends with the last of them.
/// Does nothing to a recipe that says steps. `warn` is told what read_recipe() warns of. [main-thread]
Status settle_steps(Study& study, Source& source, const std::function<void(const std::string&)>& warn);

/// Pure but for reading files; opens no weights and no device. [main-thread]; on other threads too, several at once, once all plugins that
/// the recipe uses have been opened by a study on the main thread.
Result<std::unique_ptr<Study>> study(const std::filesystem::path& recipe, const StudyOptions& options);

/// A program that plugins of others have touched is proved before it runs: it takes milliseconds, and what is wrong with it is theirs.
Status check_foreign(const Study& study);

/// Bytes of memory that this machine has.
int64_t machine_memory();

}  // namespace galley
