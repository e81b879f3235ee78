#include "host/session/study.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "host/base/confinement.hpp"
#include "host/base/json.hpp"
#include "host/base/listed.hpp"
#include "host/base/nearest.hpp"
#include "host/base/tensor_files.hpp"
#include "host/base/units.hpp"
#include "host/data/loader.hpp"
#include "host/passes/roles.hpp"
#include "host/passes/unused_kernels.hpp"
#include "host/plan/dtype.hpp"
#include "host/plan/known_isa.hpp"
#include "host/session/unfit.hpp"
#include "host/tokens/peek.hpp"
#include "host/tokens/text_codec.hpp"

namespace galley {
namespace {

bool same(const Value& a, const Value& b) { return static_cast<const Value::variant&>(a) == static_cast<const Value::variant&>(b); }

/// The strategies of all plugins that decide a facet, for a hint.
std::string deciders(const Plugins& plugins, const FacetRule& need) {
  std::vector<std::string> names;
  for (const auto& plugin : plugins.all())
    for (const StrategySpec& spec : plugin->manifest.strategies)
      if (std::ranges::any_of(spec.provides, [&](const FacetRule& has) {
            return has.facet == need.facet && (need.value.is_nil() || same(has.value, need.value));
          }))
        names.push_back(spec.name);
  return names.empty() ? "no plugin that is there has one" : "add one of these: " + listed(names, 5, 200);
}

/// Whether a strategy updates parameters, though its manifest does not say what it decides: an optimizer.
bool updates(const LoadedStrategy& s) {
  const auto says = [](const FacetRule& has) { return has.facet == "update"; };
  return s.update() && s.update()->stages & GALLEY_STAGE_STEP && s.claim() && std::ranges::none_of(s.spec().provides, says);
}

/// What a strategy relies on another one has to decide, and not otherwise: else the recipe is refused by name, before anything else is
/// looked at.
Status check_needs(const Plugins& plugins, const std::vector<std::unique_ptr<const LoadedStrategy>>& loaded) {
  for (const auto& s : loaded)
    for (const FacetRule& need : s->spec().needs) {
      if (!need.holds(s->options().values())) continue;
      const std::string who = s->place().text() + ": " + s->name() + " needs ";
      const std::string wanted = need.value.is_nil() ? "" : " = " + value_text(need.value);
      bool met = false;
      for (const auto& other : loaded) {
        met = met || (other != s && need.facet == "update" && need.value.is_nil() && updates(*other));
        for (const FacetRule& has : other->spec().provides) {
          if (other == s || has.facet != need.facet || !has.holds(other->options().values())) continue;
          met = need.value.is_nil() || same(has.value, need.value);
          if (!met)
            return recipe_error(
                who + need.facet + wanted + ", but " + other->name() + " (" + other->place().text() + ") makes it " + value_text(has.value),
                "take one of the two out of the recipe");
        }
      }
      if (!met && need.facet == "update" && wanted.empty())
        return recipe_error(who + "an optimizer, and the recipe has none", deciders(plugins, need));
      if (!met)
        return recipe_error(who + "a strategy that decides '" + need.facet + "'" + wanted + ", and the recipe has none",
                            deciders(plugins, need));
    }
  return ok();
}

/// The memory that computes into what the user or the target allows, and each class into its capacity. What this machine has counts only
/// where the plan is to be run.
Status check_fit(const Study& s, const StudyOptions& options) {
  const bool asked = options.memory_limit > 0;
  const int64_t planned = s.peak_memory(), limit = asked ? options.memory_limit : s.target.memory_limit;
  if (limit > 0 && planned > limit)
    return does_not_fit(s, s.plan.classes[0], planned, "", asked ? "--memory" : "the target's memory_limit", limit);
  if (limit == 0 && options.runs && s.host_memory() > machine_memory())
    return does_not_fit(s, s.plan.classes[s.target.host_memory()], s.host_memory(), "", "this machine", machine_memory());
  if (!options.runs && options.target.empty()) return ok();
  for (size_t i = 0; i < s.plan.classes.size(); ++i) {
    const MemoryClass& memory = s.target.memories[i];
    const ClassPlan& plan = s.plan.classes[i];
    if (memory.capacity > 0 && plan.planned > memory.capacity)
      return does_not_fit(s, plan, plan.planned, " of '" + memory.name + "'", "which", memory.capacity);
  }
  return ok();
}

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

/// Documents go with the tensors beside which they lie: config.json with the model, an adapter's configuration with the adapter.
void keep_written_documents(Program& program) {
  std::set<std::string> folders;
  for (const Instruction& i : program.segment(SegmentKind::Export).code)
    if (i.write()) folders.insert(std::filesystem::path(i.write()->file).parent_path().string());
  std::erase_if(program.documents,
                [&](const Document& d) { return !folders.contains(std::filesystem::path(d.file).parent_path().string()); });
}

/// The dtype of the numbers in the model's file, as config.json calls it.
std::string model_dtype(const Program& program) {
  for (const Instruction& i : program.segment(SegmentKind::Export).code)
    if (const Write* write = i.write(); write && write->file.starts_with("model/") && is_floating(write->dtype))
      return write->dtype == GALLEY_BF16 ? "bfloat16" : write->dtype == GALLEY_F16 ? "float16" : "float32";
  return "float32";
}

/// What transformers generates a text by, of a model that has no folder to take it from.
void add_generation(const ModelConfig& model, Program& program) {
  const auto eos = model.config.find("eos_token_id");
  const bool writes = model.learning.labels == Fill::NextTokens || model.learning.labels == Fill::TargetLabels;
  constexpr const char* file = "model/generation_config.json";
  if (!writes || !model.folder.empty() || eos == model.config.end() || eos->second.is_nil() ||
      std::ranges::any_of(program.documents, [&](const Document& d) { return d.file == file; }))
    return;
  Table out = {{"_from_model_config", Value(true)}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"})
    if (const auto id = model.config.find(key); id != model.config.end() && !id->second.is_nil()) out.emplace(key, id->second);
  program.documents.push_back({file, to_json(Value(std::move(out)), 2) + "\n"});
}

/// A model is of no use without its tokenizer, nor is an adapter whose vocabulary has grown: the files beside it go with them.
Status add_tokenizer(const Recipe& recipe, Program& program) {
  const auto files = TRY(tokenizer_files(text_data(recipe), recipe));
  if (files.empty()) return ok();
  std::set<std::string> folders;
  for (const Instruction& i : program.segment(SegmentKind::Export).code)
    if (i.write()) folders.insert(std::filesystem::path(i.write()->file).parent_path().string());
  for (const auto& [name, text] : files)
    for (const std::string& to : folders) program.documents.push_back({to + "/" + name, text});
  return ok();
}

}  // namespace

Status check_foreign(const Study& s, const Checks& checks) {
  std::set<std::string> foreign;
  const auto touched = [&](const Plugin* plugin) {
    if (plugin && !s.built_in(*plugin)) foreign.insert(plugin->manifest.id);
  };
  touched(s.device.plugin);
  for (const auto& strategy : s.loaded) touched(&strategy->plugin());
  for (const Program::Chosen& k : s.program.kernels) {
    touched(s.plugins->find(k.plugin));
    touched(s.plugins->op(k.op).plugin);
  }
  if (foreign.empty()) return ok();
  Status proved = checks.plan(s.program, s.plan, s.target);
  if (proved) return ok();
  std::string list;
  for (const std::string& id : foreign) list += (list.empty() ? "'" : ", '") + id + "'";
  return plugin_error("the program does not pass its proof with plugin " + list + ": " + proved.error().cause,
                      "without the plugin such programs pass: report it to the plugin's author, with the recipe");
}

std::string Study::loss_unit() const {
  const std::optional<Fill>& own = data.layout.counted_own;
  return own ? "a " + data.layout.own_of(*own).unit : galley::loss_unit(recipe.learning.labels);
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
  return {base / "plugins", {base / "models" / "families", base / "models" / "lib"}, base / "models" / "targets"};
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

/// The recipe, and the files that it names: the model's configuration, and what the data is.
Status read_inputs(Study& s, const std::filesystem::path& recipe, const StudyOptions& options) {
  s.recipe = TRY(read_recipe(recipe, recipe_options(options)));
  if (options.warn)
    for (const std::string& warning : s.recipe.warnings) options.warn(warning);
  if (options.edit) options.edit(s.recipe);
  TRY_STATUS(take_token_ids(s.recipe));
  s.model = TRY(read_model_config(s.recipe, s.installation.families));
  s.recipe.learning = s.model.learning;
  if (TRY(find_labels(s, options))) {
    s.model = TRY(read_model_config(s.recipe, s.installation.families));
    s.recipe.learning = s.model.learning;
  }
  if (reads_data(options) && !s.recipe.learning.learns)
    return recipe_error(s.recipe.model.place.text() + ": the model's task is '" + s.recipe.learning.task + "', by which nothing is learned",
                        "say what it is to learn: model { …, task = \"masked-lm\" }; docs/families.md has the tasks");
  const bool describes = reads_data(options) || !s.recipe.length;
  const std::vector<std::string> kinds = options.kinds.names();
  if (const DataSpec& data = s.recipe.data; describes && std::ranges::find(kinds, data.kind) == kinds.end())
    s.source = TRY(LoadedSource::create(*s.plugins, {data.kind, data.options, data.place, {}}, kinds));
  if (!describes)
    s.data.layout = {1, *s.recipe.length,
                     s.recipe.learning.labels == Fill::TargetLabels ? s.recipe.target_length.value_or(*s.recipe.length) : 0};
  else s.data = TRY(options.kinds.describe(s.recipe.data, s.recipe, s.source.get()));
  // Texts to embed lie beside each other in a row.
  if (!reads_data(options)) s.data.one_document = options.purpose != Purpose::Embed;
  return ok();
}

/// The strategies of the recipe.
Status load_strategies(Study& s) {
  // First of all, so that no strategy's plugin can put an op of its own in the place of a standard one.
  TRY(bind_roles(*s.plugins));
  for (const Use& use : s.recipe.uses) s.loaded.push_back(TRY(LoadedStrategy::create(*s.plugins, use)));
  return check_needs(*s.plugins, s.loaded);
}

BatchLayout layout_of(const Study& s, const StudyOptions& options) {
  BatchLayout out = s.data.layout;
  if (options.single_row) out.rows = 1;
  return out;
}

/// A key of config.json that says how weights are stored needs one of the strategies that know it.
Status check_stored(const Study& s) {
  const auto knows = [](const StrategySpec& spec, const std::string& key) {
    return std::ranges::find(spec.config, key) != spec.config.end();
  };
  for (const auto& [key, value] : s.model.config) {
    if (value.is_nil() || std::ranges::any_of(s.loaded, [&](const auto& used) { return knows(used->spec(), key); })) continue;
    std::string list;
    for (const auto& plugin : s.plugins->all())
      for (const StrategySpec& spec : plugin->manifest.strategies)
        if (knows(spec, key)) list += (list.empty() ? "use \"" : "or use \"") + spec.name + "\" {} ";
    if (!list.empty())
      return recipe_error(s.model.origin + ": key '" + key +
                              "' says that weights are stored in a way that only a strategy reads, and the "
                              "recipe uses none that does",
                          list + "reads it");
  }
  return ok();
}

Status build_model(Study& s, const BatchLayout& layout, const std::function<void(const std::string&)>& warn, bool of_run) {
  TRY_STATUS(check_stored(s));
  Plugins& plugins = *s.plugins;
  s.graph = std::make_unique<Graph>([&plugins](std::string_view name) { return plugins.op(name).table; },
                                    [&plugins] { return plugins.op_names(); }, Extents{layout.rows, layout.length, layout.target_length});
  for (const auto& [key, value] : s.model.config) s.graph->config[key] = to_json(value);
  s.graph->config["architectures"] = to_json(Value(List{Value(s.model.architecture)}));  // which it is saved as
  // What a strategy has written into config.json is for it to know, and to write again.
  for (const auto& strategy : s.loaded)
    for (const std::string& key : strategy->spec().config) s.model.config.erase(key);
  s.graph->own_inputs = s.data.layout.own;
  TRY_STATUS(build_family(s.model, s.installation.families, s.data.one_document ? RowDocuments::One : RowDocuments::Several, *s.graph));
  for (galley_tensor t = 1; t <= s.graph->tensor_count(); ++t) {
    const GraphTensor& x = s.graph->tensor(t);
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
  out.keep_scores = s.recipe.learning.labels == Fill::RowLabels || s.recipe.learning.labels == Fill::TokenLabels;
  out.evaluates = s.recipe.validate.every > 0 && s.data.validation;
  out.exports = s.recipe.save.final;
  out.merges = options.merges;
  out.trainable = options.trainable;
  out.export_dtype = dtype_named(options.export_dtype.empty() ? s.recipe.save.dtype : options.export_dtype);
  out.base_dtype = [&model = s.recipe.model] { return base_dtype(model); };
  out.head_rows = options.head_rows > 0 ? options.head_rows : s.recipe.head_rows;
  out.least_head = least_head;
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

void warn_of_unused_kernels(const Study& s, const StudyOptions& options) {
  if (!options.warn) return;
  std::vector<std::string> used;
  for (const auto& strategy : s.loaded)
    if (!s.built_in(strategy->plugin())) used.push_back(strategy->plugin().manifest.id);
  for (const std::string& line : unused_kernels(*s.plugins, s.target, s.program, s.recipe.kernels, used))
    options.warn(s.recipe.name + ": " + line);
}

/// What export writes beside the tensors: the model's configuration and tokenizer, and strategies' documents.
Status complete_documents(Study& s) {
  describe_model(s.model, model_dtype(s.program), s.graph->exports.config, s.program.documents);
  if (!s.program.segment(SegmentKind::Export).code.empty()) {
    TRY_STATUS(add_tokenizer(s.recipe, s.program));
    add_generation(s.model, s.program);
  }
  keep_written_documents(s.program);
  return ok();
}

Result<std::unique_ptr<Study>> make_study(const std::filesystem::path& recipe, const StudyOptions& options, bool least_head) {
  if (options.unconfined) return recipe_error("--unconfined applies to a run's directory only");
  auto out = std::make_unique<Study>();
  Study& s = *out;
  s.installation = options.installation;
  s.kinds = options.kinds;
  const FamilyFolders& own = s.installation.families;
  for (const std::filesystem::path& folder : {own.families, own.library, s.installation.targets}) Confinement::lend(folder);
  const std::filesystem::path built_in[] = {s.installation.plugins};
  s.plugins = Plugins::scan(
      plugin_search_path(built_in, options.plugin_path), options.warn ? options.warn : [](const std::string&) {});
  TRY_STATUS(read_inputs(s, recipe, options));
  TRY_STATUS(load_strategies(s));
  TRY_STATUS(choose_target(s, options));
  if (!options.target.empty()) TRY_STATUS(check_isa(s.target, "--target " + options.target, s.machine, *s.plugins, s.installation.targets));
  s.target.deterministic = s.recipe.deterministic;
  TRY_STATUS(build_model(s, layout_of(s, options), options.warn, options.of_run));
  TRY_STATUS(load_kernels(s));
  s.program = TRY(compile(*s.graph, s.loaded, *s.plugins, s.target, compile_options(s, options, least_head)));
  // What a window counts is labels that the model reads.
  for (const Program::Input& input : s.program.inputs)
    if (input.fill == s.data.layout.own_labels()) s.data.layout.counted_own = input.fill;
  warn_of_unused_kernels(s, options);
  if (reads_data(options))
    TRY_STATUS(check_data(s.data, s.recipe.data, s.program.vocabulary, {s.program.micro_batches, s.program.window_tokens}));
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
  // The same text once more, this time with the number of steps.
  RecipeOptions options{recipe};
  options.within = recipe.confinement;
  options.steps = steps;
  const Recipe settled = TRY(read_recipe(recipe.name, options));
  for (const std::string& warning : settled.warnings) warn(warning);
  std::map<size_t, std::unique_ptr<const Options>> of_use;
  for (ScalarSlot& slot : s.program.slots) {
    if (slot.which) continue;
    auto& given = of_use[slot.use];
    if (!given) given = TRY(Options::create(s.loaded[slot.use]->spec(), settled.uses[slot.use]));
    if (const Schedule* schedule = given->schedule(slot.option.substr(slot.option.rfind('.') + 1))) slot.schedule = *schedule;
  }
  s.recipe.steps = steps;
  return ok();
}

Result<std::unique_ptr<Study>> study(const std::filesystem::path& recipe, const StudyOptions& options) {
  Result<std::unique_ptr<Study>> made = make_study(recipe, options, false);
  if (made ? !(*made)->unfit : made.error().exit != Exit::DoesNotFit) return made;
  StudyOptions again = options;
  again.warn = {};  // it has been told
  return make_study(recipe, again, true);
}

}  // namespace galley
