// A study: does everything that happens before a device is opened, from the recipe to the plan. `galley plan` prints one as a table.
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

/// The folders of Galley's own files: beside the program, or where `cmake --install` has put them.
struct Installation {
  std::filesystem::path plugins;  ///< built-in plugins, one folder each
  FamilyFolders families;
  std::filesystem::path targets;         ///< machines that --target names
  std::filesystem::path check = {};      ///< what `galley check` makes recipes of, a TOML file
  std::filesystem::path templates = {};  ///< of plugins, where the SDK is installed
};
Installation find_installation();

/// Galley's own modules are those of the installation, whatever the recipe's options say.
struct StudyOptions : RecipeOptions {
  Checks checks;                                   ///< proofs/checks.hpp; must be given
  DataKinds kinds;                                 ///< sources/kinds.hpp; must be given
  bool unconfined = false;                         ///< --unconfined: of a run, whoever made it
  std::string command;                             ///< the command line, for hints
  std::vector<std::filesystem::path> plugin_path;  ///< --plugin-path
  std::string device = "cpu";                      ///< --device
  std::string target;                              ///< --target, a file or a name; "": this machine
  std::string target_text;                         ///< a run's own target, for resume; "" : not given
  int64_t head_rows = 0;                           ///< a run's own, for resume; 0: the recipe decides, or `order` chooses
  std::string exchanges;                           ///< the plugin that has joined the processes; "": none has
  Lanes lanes = {};                                ///< lanes: --lanes or a run's own, 0: the recipe decides; processes as started
  int64_t memory_limit = 0;                        ///< --memory, bytes; 0: what the machine has, if the plan is to be run
  bool shows_unfit = false;                        ///< a plan that does not fit is no error, but goes to Study::unfit
  bool runs = true;                                ///< the plan will be run here: it must fit this machine
  Purpose purpose = Purpose::Train;
  bool merges = false;       ///< Export: --merge
  std::string export_dtype;  ///< Export: --dtype, a name that dtype_named() knows; "": the recipe decides
  bool keep_logits = false;
  bool single_row = false;                       ///< Sample: B = 1
  int64_t sample_rows = 1;                       ///< Sample, with single_row: texts that are continued at once
  bool caches = false;                           ///< Sample: with caches of keys and values, if the model allows
  bool int8_cache = false;                       ///< Sample: they are kept in 8 bit
  std::function<void(const std::string&)> warn;  ///< gets a line for each plugin that cannot be used
  Installation installation = find_installation();
  std::set<std::string> without;                                   ///< --without: passes of the compiler that are left out
  std::function<void(const PassInfo&, const Compilation&)> watch;  ///< is called after every pass of the compiler, if it is given
  std::vector<std::string> labels;    ///< names of labels that a run has found in its data; empty: the data is read for them
  bool of_run = false;                ///< a run has saved what it has trained: weights that the model's files lack do not begin anew
  std::function<void(Recipe&)> edit;  ///< changes the recipe once it has been read; it then has steps and no epochs
  /// Evaluate: only these of the parameters that are to be trained are; not given: all of them.
  std::optional<std::set<std::string>> trainable = {};
};

/// Returns what a study with these options reads its recipe with.
RecipeOptions recipe_options(const StudyOptions& options);

/// The result of a study, which owns all that it has made. Nothing in it moves once made.
struct Study {
  Installation installation;
  std::string machine;  ///< the ISA of the device that is here, whatever the target
  std::unique_ptr<Plugins> plugins;
  Recipe recipe;
  ModelConfig model;
  DataKinds kinds;
  DataPlugins sources;
  DataInfo data;
  std::vector<std::unique_ptr<const LoadedStrategy>> loaded;
  Registered<galley_device> device;  ///< none if the plan is made for another machine
  Target target;
  std::unique_ptr<Draft> draft;
  Program program;
  Plan plan;
  std::optional<Error> unfit;     ///< with StudyOptions::shows_unfit: says that the plan does not fit
  int64_t host_memory() const;    ///< planned bytes of the classes that the host reaches: all lie in its memory
  int64_t peak_memory() const;    ///< planned bytes of the memory that computes: the host's, or class 0 if that is not the host's
  std::string loss_unit() const;  ///< "nats a token", "a pair"
  bool predicts_tokens() const;   ///< whether the labels are tokens of the vocabulary
  bool built_in(const Plugin& plugin) const;  ///< whether it came with the program
};

/// Turns the recipe's epochs into steps once the data is open, and makes schedules anew. The source then ends with the last step. Does
/// nothing to a recipe that says steps. `warn` gets the warnings of read_recipe(). [main-thread]
Status settle_steps(Study& study, Source& source, const std::function<void(const std::string&)>& warn);

/// Studies a recipe. Pure except that it reads files; opens no weights and no device. [main-thread]; several at once on other threads, once
/// a study on the main thread has opened all plugins that the recipe uses.
Result<std::unique_ptr<Study>> study(const std::filesystem::path& recipe, const StudyOptions& options);

/// Returns the bytes of memory that this machine has.
int64_t machine_memory();

}  // namespace galley
