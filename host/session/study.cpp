#include "host/session/study.hpp"

#include <unistd.h>

#include <algorithm>

#include "host/base/confinement.hpp"
#include "host/base/json.hpp"
#include "host/base/listed.hpp"
#include "host/base/nearest.hpp"
#include "host/base/tensor_files.hpp"
#include "host/data/loader.hpp"
#include "host/passes/roles.hpp"
#include "host/plan/dtype.hpp"
#include "host/plan/known_isa.hpp"
#include "host/session/saved_documents.hpp"
#include "host/session/study_checks.hpp"
#include "host/session/vocabulary.hpp"
#include "host/tokens/peek.hpp"
#include "host/tokens/text_codec.hpp"

namespace galley {
namespace {

/// The machine that the plan is for, and its device. A plan for a machine that a file describes whole asks nothing of this one.
Status choose_target(Study& s, const StudyOptions& options) {
  std::filesystem::path file;
  if (!options.target.empty()) file = TRY(find_target(options.target, s.installation.targets));
  if (!file.empty() && !options.runs) {
    if (std::optional<Target> whole = TRY(read_whole_target(file))) {
      s.target = *std::move(whole);
      return ok();
    }
  }
  s.device = s.plugins->device(options.device);
  if (!s.device) {
    std::vector<std::string> kinds;
    for (const auto& d : s.plugins->devices()) kinds.emplace_back(d.table->kind);
    std::string list;
    for (const std::string& k : kinds) list += (list.empty() ? "" : ", ") + k;
    const std::string guess = did_you_mean(options.device, kinds);
    return recipe_error("--device " + options.device + ": no plugin provides it", guess.empty() ? "there is: " + list : guess);
  }
  s.target = TRY(describe_target(*s.device.table));
  s.machine = s.target.isa;
  if (!file.empty()) {
    const std::string device = s.target.device;
    const std::vector<MemoryClass> own = s.target.memories;
    s.target = TRY(read_target(file, s.target));
    if (options.runs && s.target.device != device)
      return recipe_error("--target " + options.target + " is of device '" + s.target.device + "', and this runs on '" + device + "'",
                          "give --device too, or look at the plan only: galley plan RECIPE --target " + options.target);
    for (size_t i = 0; i < s.target.memories.size() && i < own.size(); ++i)
      if (const MemoryClass& memory = s.target.memories[i]; options.runs && memory.alignment < own[i].alignment)
        return recipe_error("--target " + options.target + ": memory class '" + memory.name + "' has the alignment " +
                                std::to_string(memory.alignment) + "; kernels of device '" + device + "' rely on " +
                                std::to_string(own[i].alignment),
                            "give the device's own, or more");
  }
  if (!options.target_text.empty()) s.target = TRY(parse_target(options.target_text, "run.toml", s.target));
  return ok();
}

}  // namespace

std::string Study::loss_unit() const {
  const std::optional<Fill>& own = data.layout.counted_own;
  return own ? "a " + data.layout.own_of(*own).unit : info_of(recipe.learning.labels).unit;
}

bool Study::predicts_tokens() const {
  return recipe.learning.labels != Fill::TokenLabels && !of_rows(recipe.learning.labels) && !data.layout.counted_own;
}

bool Study::built_in(const Plugin& plugin) const { return plugin.manifest.folder().parent_path() == installation.plugins; }

int64_t Study::host_memory() const {
  int64_t sum = 0;
  for (size_t i = 0; i < plan.classes.size(); ++i)
    if (target.memories[i].host_access) sum += plan.classes[i].planned;
  return sum;
}

int64_t Study::peak_memory() const { return target.memories[0].host_access ? host_memory() : plan.classes[0].planned; }

int64_t machine_memory() { return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE); }

Installation find_installation() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path base = program.parent_path();  // an installed bin/galley is a link into lib/galley
  return {base / "plugins",
          {base / "models" / "families", base / "models" / "lib"},
          base / "models" / "targets",
          base / "models" / "check" / "small.toml",
          base / "templates"};
}

RecipeOptions recipe_options(const StudyOptions& options) {
  RecipeOptions out = options;
  out.library = options.installation.families.library;
  return out;
}

namespace {

/// Sampling and exporting need no data, which may be gone by now, where the recipe itself says how long a row is.
bool reads_data(const StudyOptions& options) {
  return options.purpose != Purpose::Sample && options.purpose != Purpose::Embed && options.purpose != Purpose::Predict &&
         options.purpose != Purpose::Export;
}

/// Whether nobody has named the model's labels: there are none, or they are called LABEL_0 and so on.
bool unnamed(const Learning& learning) {
  return std::ranges::all_of(learning.names, [](const auto& one) { return one.first == "LABEL_" + std::to_string(one.second); });
}

/// Where neither the recipe nor the model's configuration says which labels there are, the data does: names in their order, or numbers up
/// to the largest. Says whether it did.
Result<bool> find_labels(Study& s, const StudyOptions& options) {
  ModelSpec& model = s.recipe.model;
  const Learning& learning = s.recipe.learning;
  const bool learned = learning.labels == Fill::RowLabels || learning.labels == Fill::TokenLabels;
  if (!learned || model.labels > 0 || !unnamed(learning)) return false;
  if (!options.labels.empty()) {
    model.label_names = options.labels;
    return true;
  }
  if (!reads_data(options)) return false;
  const LabelsFound found = TRY(labels_in(s.recipe.data));
  if (!found.names.empty()) model.label_names = found.names;
  for (int64_t i = 0; found.names.empty() && found.largest >= learning.classes && found.largest < 10'000 && i <= found.largest; ++i)
    model.label_names.push_back("LABEL_" + std::to_string(i));
  return !model.label_names.empty();
}

/// Reads the model's configuration.
Status read_model(Study& s) {
  s.model = TRY(read_model_config(s.recipe, s.installation.families));
  s.recipe.learning = s.model.learning;
  return grow_vocabulary(s.recipe, s.model);
}

/// The tokenizer that a kind of data has by its manifest, where the recipe names none.
void take_default_tokenizer(DataSpec& data, const Plugins& plugins, const std::vector<std::string>& built_in) {
  for (DataSpec& part : data.parts) take_default_tokenizer(part, plugins, built_in);
  if (data.options.contains("tokenizer") || std::ranges::find(built_in, data.kind) != built_in.end()) return;
  const auto found = plugins.source(data.kind, data.place, built_in);
  for (const OptionSpec& option : found ? found->spec->options : std::vector<OptionSpec>())
    if (option.name == "tokenizer" && option.fallback.as<std::string>()) data.options["tokenizer"] = option.fallback;
}

/// Reads the files that the recipe names: the model's configuration, and what the data is.
Status read_inputs(Study& s, const StudyOptions& options) {
  if (options.warn)
    for (const std::string& warning : s.recipe.warnings) options.warn(warning);
  if (options.edit) options.edit(s.recipe);
  take_default_tokenizer(s.recipe.data, *s.plugins, options.kinds.names());
  TRY_STATUS(take_token_ids(s.recipe));
  TRY_STATUS(read_model(s));
  if (TRY(find_labels(s, options))) TRY_STATUS(read_model(s));
  if (reads_data(options) && !s.recipe.learning.learns)
    return recipe_error(s.recipe.model.place.text() + ": the model's task is '" + s.recipe.learning.task + "', by which nothing is learned",
                        "say what it is to learn: model { …, task = \"masked-lm\" }; docs/families.md has the tasks");
  if (!reads_data(options) && s.recipe.length) {
    s.data.layout = {1, *s.recipe.length,
                     s.recipe.learning.labels == Fill::TargetLabels ? s.recipe.target_length.value_or(*s.recipe.length) : 0};
  } else {
    const DataSpec& data = s.recipe.data;
    for (const DataSpec& part : data.parts.empty() ? std::vector{data} : data.parts)
      s.sources.push_back(TRY(LoadedSource::create(*s.plugins, {part.kind, part.options, part.place, {}}, options.kinds.names())));
    s.data = TRY(options.kinds.describe(data, s.recipe, s.sources));
  }
  // Texts to embed lie beside each other in a row.
  if (!reads_data(options)) s.data.one_document = options.purpose != Purpose::Embed;
  return ok();
}

/// Positions of a prompt that are taken at once: enough for products to run at full speed.
constexpr int64_t kPromptPositions = 64;

/// Loads the strategies of the recipe.
Status load_strategies(Study& s) {
  // First of all, so that no strategy's plugin can put an op of its own in the place of a standard one.
  TRY(bind_roles(*s.plugins));
  TRY_STATUS(number_tokens(s.recipe, *s.plugins));
  for (const Use& use : s.recipe.uses) s.loaded.push_back(TRY(LoadedStrategy::create(*s.plugins, use)));
  return check_needs(*s.plugins, s.loaded);
}

BatchLayout layout_of(const Study& s, const StudyOptions& options) {
  BatchLayout out = s.data.layout;
  if (options.single_row) out.rows = options.purpose == Purpose::Sample ? options.sample_rows : 1;
  return out;
}

Status build_model(Study& s, const BatchLayout& layout, const std::function<void(const std::string&)>& warn, bool of_run) {
  TRY_STATUS(check_stored(s));
  Plugins& plugins = *s.plugins;
  s.draft = std::make_unique<Draft>([&plugins](std::string_view name) { return plugins.op(name).table; },
                                    [&plugins] { return plugins.op_names(); }, Extents{layout.rows, layout.length, layout.target_length});
  for (const auto& [key, value] : s.model.config) s.draft->run.config[key] = to_json(value);
  s.draft->run.config["architectures"] = to_json(Value(List{Value(s.model.architecture)}));  // which it is saved as
  // What a strategy has written into config.json is for it to know, and to write again.
  for (const auto& strategy : s.loaded)
    for (const std::string& key : strategy->spec().config) s.model.config.erase(key);
  s.draft->run.own_inputs = s.data.layout.own;
  TRY_STATUS(build_family(s.model, s.installation.families, s.data.one_document ? RowDocuments::One : RowDocuments::Several, *s.draft));
  for (galley_tensor t = 1; t <= s.draft->graph.tensor_count(); ++t) {
    const GraphTensor& x = s.draft->graph.tensor(t);
    if (x.kind != GALLEY_KIND_INPUT || is_own(x.fill)) continue;
    s.data.layout.fills.add(x.fill);
    if (of_rows(x.fill)) s.data.layout.labels = x.shape.size() > 1 ? x.shape[1] : 1;
  }
  if (warn && !s.model.fresh.empty() && !of_run)
    warn(s.model.origin + ": the model's files do not have " + listed(s.model.fresh, 4, 200) + ": " +
         (s.model.fresh.size() == 1 ? "it begins" : "they begin") + " with random numbers, as in a new model");
  return ok();
}

/// Loads the plugins whose kernels the recipe asks for.
Status load_kernels(Study& s) {
  for (const std::string& id : s.recipe.kernels) {
    if (s.plugins->find(id)) continue;
    std::vector<std::string> ids;
    for (const auto& p : s.plugins->all()) ids.push_back(p->manifest.id);
    return recipe_error(s.recipe.name + ": 'kernels' names the plugin '" + id + "', which is not there", did_you_mean(id, ids));
  }
  for (const auto& p : s.plugins->all())
    if (std::ranges::find(s.recipe.kernels, p->manifest.id) != s.recipe.kernels.end()) TRY_STATUS(s.plugins->load(*p));
  return ok();
}

/// The dtype of more than half of the numbers in the model's files; 0: it has none, or they are no plain numbers.
uint32_t base_dtype(const ModelSpec& model) {
  if (model.path.empty() || model.random) return 0;
  const auto files = tensor_files::Reader::open(model.path);
  if (!files) return 0;  // what is wrong with them is said by who reads them
  std::map<uint32_t, uint64_t> bytes;
  uint64_t all = 0;
  for (const tensor_files::Entry& entry : files->entries()) {
    all += entry.bytes;
    bytes[dtype_of(entry.dtype)] += entry.bytes;
  }
  for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
    if (2 * bytes[dtype] > all) return dtype;
  return 0;
}

CompileOptions compile_options(const Study& s, const StudyOptions& options, bool least_head) {
  CompileOptions out;
  out.purpose = options.purpose;
  out.keep_logits = options.keep_logits;
  const bool writes = options.purpose == Purpose::Train || options.purpose == Purpose::Evaluate;
  if (options.purpose == Purpose::Sample ? options.caches : writes && !s.recipe.evaluate.prompts.empty())
    out.prompt_positions = kPromptPositions;
  out.int8_cache = options.purpose == Purpose::Sample ? options.int8_cache : s.recipe.evaluate.int8_cache;
  out.keep_scores = s.recipe.learning.labels == Fill::RowLabels || s.recipe.learning.labels == Fill::TokenLabels;
  out.counts_hits = s.predicts_tokens();
  out.evaluates = s.recipe.validate.every > 0 && s.data.validation;
  out.exports = s.recipe.save.final;
  out.merges = options.merges;
  out.trainable = options.trainable;
  out.export_dtype = dtype_named(options.export_dtype.empty() ? s.recipe.save.dtype : options.export_dtype);
  out.base_dtype = [&model = s.recipe.model] { return base_dtype(model); };
  out.head_rows = options.head_rows > 0 ? options.head_rows : s.recipe.head_rows;
  out.least_head = least_head;
  out.exchanges = options.exchanges;
  out.lanes = options.lanes;
  if (out.lanes.lanes == 0) out.lanes.lanes = s.recipe.lanes;
  out.lanes.axis = s.recipe.axis;
  out.lanes.together = out.lanes.ranks > 1 ? s.recipe.together : 1;
  out.seed = s.recipe.seed;
  out.steps = s.recipe.epochs > 0 ? 0 : s.recipe.steps;  // a resumed run knows how many the epochs are
  out.memory_limit = options.memory_limit > 0 ? options.memory_limit : s.target.memory_limit;
  out.corpus_bytes = reads_data(options) ? static_cast<int64_t>(s.data.bytes()) : 0;
  out.window_bytes = [layout = layout_of(s, options), held = s.target.steps_under_way()](int64_t micro_batches) {
    return static_cast<int64_t>(Loader::bytes(layout, micro_batches, held));
  };
  out.kernels = {s.recipe.kernels.begin(), s.recipe.kernels.end()};
  out.without = options.without;
  out.check = options.checks.pass;
  out.watch = options.watch;
  out.built_in = [&s](const Plugin& plugin) { return s.built_in(plugin); };
  return out;
}

/// A recipe's `evaluate` needs a model that writes, and keeps keys and values.
Status check_writes(const Study& s, int64_t prompt_positions) {
  if (prompt_positions == 0 || s.recipe.evaluate.prompts.empty() || s.program.cached.start != no_tensor) return ok();
  const std::string why = s.program.uncached.empty() ? "a model whose task is '" + s.recipe.learning.task + "' writes none"
                                                     : "keys and values cannot be kept: " + s.program.uncached;
  return recipe_error(s.recipe.evaluate.place.text() + ": 'evaluate' lets the model write texts, but " + why, "leave 'evaluate' out");
}

/// Processes that compute together are groups of the run's, each of which takes part in everything.
Status check_together(const Recipe& recipe, int64_t ranks) {
  const std::string together = std::to_string(recipe.together);
  if (ranks == 1 || recipe.together == 1) return ok();
  if (ranks % recipe.together != 0)
    return recipe_error(
        recipe.name + ": " + together + " processes along '" + recipe.axis + "' compute together, and the run has " + std::to_string(ranks),
        "start a multiple of " + together + " processes, or one");
  if (!recipe.evaluate.prompts.empty())
    return recipe_error(recipe.evaluate.place.text() + ": 'evaluate' lets one process write texts, and " + together + " along '" +
                            recipe.axis + "' compute together",
                        "leave 'evaluate' out, and use `galley eval` when the run is over");
  return ok();
}

Result<std::unique_ptr<Study>> make_study(const Recipe& recipe, const StudyOptions& options, bool least_head) {
  auto out = std::make_unique<Study>();
  Study& s = *out;
  s.recipe = recipe;
  s.installation = options.installation;
  s.kinds = options.kinds;
  const std::filesystem::path built_in[] = {s.installation.plugins};
  s.plugins = Plugins::scan(
      plugin_search_path(built_in, options.plugin_path), options.warn ? options.warn : [](const std::string&) {});
  if (s.recipe.tune && options.lanes.ranks > 1)
    return recipe_error("tune = true measures kernels for one process; several have to take the same ones", "leave it out");
  TRY_STATUS(check_together(s.recipe, options.lanes.ranks));
  TRY_STATUS(read_inputs(s, options));
  TRY_STATUS(load_strategies(s));
  TRY_STATUS(choose_target(s, options));
  if (!options.target.empty()) TRY_STATUS(check_isa(s.target, "--target " + options.target, s.machine, *s.plugins, s.installation.targets));
  s.target.deterministic = s.recipe.deterministic;
  TRY_STATUS(build_model(s, layout_of(s, options), options.warn, options.of_run));
  TRY_STATUS(load_kernels(s));
  const CompileOptions compiled = compile_options(s, options, least_head);
  s.program = TRY(compile(*s.draft, s.loaded, *s.plugins, s.target, compiled));
  if (s.program.together > 1 && std::ranges::none_of(s.program.tensors, &ProgramTensor::neighbours))
    return recipe_error(s.recipe.name + ": " + std::to_string(s.program.together) + " processes along '" + s.recipe.axis +
                            "' would compute the same, since no strategy divides anything among them",
                        "leave 'ranks' out of the recipe, or use a strategy that divides parameters along '" + s.recipe.axis + "'");
  TRY_STATUS(check_writes(s, compiled.prompt_positions));
  // What a window counts is labels that the model reads.
  for (const Program::Input& input : s.program.inputs)
    if (input.fill == s.data.layout.own_labels()) s.data.layout.counted_own = input.fill;
  warn_of_unused_kernels(s, options);
  if (const std::string untrained = untrained_rows(s); options.warn && !untrained.empty()) options.warn(untrained);
  if (reads_data(options))
    TRY_STATUS(s.kinds.check(s.data, s.recipe.data, s.program.vocabulary, {s.program.micro_batches, s.program.window_tokens}));
  s.plan = make_plan(s.program, s.target);
  TRY_STATUS(check_foreign(s, options.checks));
  if (Status fits = check_fit(s, options); !fits) {
    if (!options.shows_unfit || fits.error().exit != Exit::DoesNotFit) return std::move(fits).error();
    s.unfit = std::move(fits).error();
  }
  TRY_STATUS(complete_documents(s));
  return out;
}

}  // namespace

Status settle_steps(Study& s, Source& source, const std::function<void(const std::string&)>& warn) {
  const Recipe& recipe = s.recipe;
  if (recipe.epochs == 0) return ok();
  source.end_after(recipe.epochs);
  const int64_t steps = TRY(source.windows_in(recipe.epochs));
  if (steps > kMostSteps)
    return recipe_error(recipe.epochs_place.text() + ": 'epochs' are more than " + std::to_string(kMostSteps) + " steps here",
                        "fewer epochs, or a larger batch");
  if (recipe.steps == steps) return ok();
  if (recipe.steps > 0)
    return recipe_error(recipe.epochs_place.text() + ": the epochs were " + std::to_string(recipe.steps) + " steps and are " +
                            std::to_string(steps) + " now",
                        "the data has changed since the run began; begin a new run");
  Recipe settled = TRY(with_steps(recipe, steps));
  TRY_STATUS(number_tokens(settled, *s.plugins));
  for (const std::string& warning : settled.warnings) warn(warning);
  std::map<size_t, std::unique_ptr<const Options>> of_use;
  for (ScalarSlot& slot : s.program.slots) {
    if (slot.which) continue;
    auto& given = of_use[slot.use];
    if (!given) given = TRY(Options::create(s.loaded[slot.use]->spec(), settled.uses[slot.use]));
    if (const Schedule* schedule = given->schedule(slot.option.substr(slot.option.rfind('.') + 1))) slot.schedule = *schedule;
  }
  s.recipe.steps = steps;
  s.recipe.script.reset();
  return ok();
}

Result<std::unique_ptr<Study>> study(const std::filesystem::path& recipe, const StudyOptions& options) {
  if (options.unconfined) return recipe_error("--unconfined applies to a run's directory only");
  const FamilyFolders& own = options.installation.families;
  for (const std::filesystem::path& folder : {own.families, own.library, options.installation.targets}) Confinement::lend(folder);
  const Recipe read = TRY(read_recipe(recipe, recipe_options(options)));
  Result<std::unique_ptr<Study>> made = make_study(read, options, false);
  if (made ? !(*made)->unfit : made.error().exit != Exit::DoesNotFit) return made;
  StudyOptions again = options;
  again.warn = {};  // it has been told
  return make_study(read, again, true);
}

}  // namespace galley
