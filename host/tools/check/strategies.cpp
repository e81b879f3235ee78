// A strategy while runs are planned: its options, whether it says the same whenever and wherever it is asked, what it claims, and what its
// updates are made of.
#include <algorithm>
#include <array>
#include <set>
#include <thread>

#include "galley/update.h"
#include "host/passes/facets.hpp"
#include "host/passes/judge.hpp"
#include "host/passes/verbs/handle.hpp"
#include "host/plugins/abi.hpp"
#include "host/proofs/dump.hpp"
#include "host/proofs/usage.hpp"
#include "host/tools/check/recipes.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/check/updates.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

/// Another value of an option, at an end of what it may be.
struct Variation {
  std::string option;
  Value value;
};

std::vector<Variation> variations(const StrategySpec& spec, const Table& given) {
  std::vector<Variation> out;
  for (const OptionSpec& option : spec.options) {
    // What the example leaves out may be left out for a reason: beside what it gives, it would be refused.
    if (option.fallback.is_nil() && !given.contains(option.name)) continue;
    const auto end = [&](double x, bool open) {
      if (!std::isfinite(x) || open) return;
      if (option.type == OptionType::Integer || option.type == OptionType::Bytes)
        out.push_back({option.name, Value(static_cast<int64_t>(x))});
      else out.push_back({option.name, Value(x)});
    };
    if (option.type == OptionType::Integer || option.type == OptionType::Number || option.type == OptionType::Bytes) {
      end(option.range.low, option.range.low_open);
      end(option.range.high, option.range.high_open);
    }
    if (option.type == OptionType::Boolean)
      for (const bool b : {false, true}) out.push_back({option.name, Value(b)});
    for (const std::string& choice : option.choices) out.push_back({option.name, Value(choice)});
  }
  return out;
}

class StrategyCheck {
 public:
  StrategyCheck(const CheckContext& context, const StrategySpec& spec, TestLog& log) : context_(context), spec_(spec), log_(log) {}

  Status run() {
    const FoundRecipe found = TRY(find_recipe(context_, spec_.name));
    TRY_STATUS(read_use(found));
    if (use_) check_options();
    if (!found.recipe) {
      const std::string cause = found.refused ? found.refused->cause : "";
      if (found.refused && found.refused->exit == Exit::Plugin) log_.find("", cause, rules::broken_by(cause));
      else log_.unchecked("no small recipe with it can be planned: " + cause);
      return ok();
    }
    path_ = TRY(write_recipe(context_, "strategy", found.recipe->text(4)));
    TRY_STATUS(check_plan());
    if (use_) check_asked(spec_, asked_, "", log_);
    return ok();
  }

 private:
  void find(const std::string& where, const std::string& sentence, const char* rule) { log_.find(where, sentence, rule); }

  /// The strategy's entry in the recipe.
  Status read_use(const FoundRecipe& found) {
    const Around around = TRY(read_around(context_));
    SmallRecipe recipe = found.recipe ? *found.recipe : SmallRecipe{around.models.front(), around.data, {}};
    if (!found.recipe) recipe.uses = {example_of(context_.plugin).use_of(spec_.name)};
    const std::filesystem::path path = TRY(write_recipe(context_, "use", recipe.text(4)));
    const Result<Recipe> read = read_recipe(path, recipe_options(context_.study));
    if (read)
      for (const Use& use : read->uses)
        if (use.name == spec_.name) use_ = use;
    return ok();
  }

  Result<std::unique_ptr<const LoadedStrategy>> create(const Table& options) {
    Use use = *use_;
    use.options = options;
    auto made = LoadedStrategy::create(context_.plugins, use);
    if (made) asked_.insert((*made)->options().asked().begin(), (*made)->options().asked().end());
    return made;
  }

  /// What the manifest allows, `create` takes; and a hundred instances leave no trace.
  void check_options() {
    const auto first = create(use_->options);
    if (first) values_ = (*first)->options().values();
    if (!first) {
      // Of options that it requires and no example gives, the host speaks; else the defaults make nothing.
      if (first.error().exit == Exit::Plugin) find("", first.error().cause, rules::broken_by(first.error().cause));
      else if (std::ranges::all_of(spec_.options, [&](const OptionSpec& o) { return !o.required || use_->options.contains(o.name); }))
        find("", first.error().cause, rules::kDefaults);
      else log_.unchecked("options: " + first.error().cause);
      use_.reset();
      return;
    }
    size_t taken = 0;
    for (const Variation& v : variations(spec_, use_->options)) {
      Table options = use_->options;
      options[v.option] = v.value;
      auto made = create(options);
      if (!made) {  // beside other options of the example it may mean nothing
        Table alone;
        for (const OptionSpec& o : spec_.options)
          if (const auto given = use_->options.find(o.name); o.required && given != use_->options.end()) alone.insert(*given);
        alone[v.option] = v.value;
        made = create(alone);
      }
      if (made) ++taken;
      else find("option '" + v.option + "'", value_text(v.value) + " is refused: " + made.error().cause, rules::kRanges);
    }
    if ((*first)->observer()) (void)check_listener(context_, **first, log_);
    log_.held("options: the example and " + std::to_string(taken) + " ends and choices");
    constexpr int some = 20, many = 100;
    const auto make = [&](int n) {
      for (int i = 0; i < n; ++i) (void)create(use_->options);
    };
    make(some);
    const int64_t files = open_files(), bytes = memory_in_use();
    make(many);
    if (const int64_t more = open_files() - files; more > 0)
      find("", std::to_string(many) + " instances leave " + std::to_string(more) + " files open", rules::kDestroy);
    if (const int64_t more = memory_in_use() - bytes; more > many * 1024)
      find("", printed("%d instances leave %.1f KiB", many, static_cast<double>(more) / 1024), rules::kDestroy);
    log_.held("a hundred instances");
  }

  // ---- What it says while a run is planned ---------------------------------------------------------------------------------------------

  using Probe = std::function<Status(Compilation&, const PassInfo&)>;
  Result<std::unique_ptr<Study>> plan(const Probe& probe = {}) const {
    StudyOptions options = context_.study;
    if (probe)
      options.checks.pass = [before = options.checks.pass, probe](Compilation& c, const PassInfo& pass) -> Status {
        TRY_STATUS(before(c, pass));
        return probe(c, pass);
      };
    return study(path_, options);
  }

  Status check_plan() {
    const auto first = plan([&](Compilation& c, const PassInfo& pass) -> Status {
      if (std::string_view(pass.name) == "update") TRY_STATUS(check_updates(context_, spec_, c, log_));
      if (std::string_view(pass.name) == "load") check_requires(context_, spec_, c, log_);
      return ok();
    });
    if (!first) return find("", first.error().cause, rules::kPure), ok();
    for (const auto& loaded : (*first)->loaded)
      if (loaded->name() == spec_.name) asked_.insert(loaded->options().asked().begin(), loaded->options().asked().end());
    check_provides();
    const std::string text = dump_plan((*first)->program, (*first)->plan);
    std::array<std::string, 4> others;
    const auto again = [&](std::string& to) {
      const auto planned = plan();
      to = planned ? dump_plan((*planned)->program, (*planned)->plan) : planned.error().cause;
    };
    again(others[0]);
    std::thread a([&] { again(others[1]); }), b([&] { again(others[2]); });
    a.join();
    b.join();
    again(others[3]);
    if (std::ranges::any_of(others, [&](const std::string& other) { return other != text; }))
      find("", "the same recipe is planned otherwise when it is planned again", rules::kPure);
    else log_.held("planned five times, two of them at once");
    check_calls();
    return ok();
  }

  void check_provides() {
    if (spec_.provides.empty()) return;
    std::set<std::string> claimed;
    const auto probed = plan([&](Compilation& c, const PassInfo&) -> Status {
      if (const auto use = use_in(c); use && c.strategies[static_cast<size_t>(*use)]->saved()) claimed.insert("saved");
      for (const std::string& facet : claims_seen(c)) claimed.insert(facet);
      return ok();
    });
    if (!probed) return;
    for (const auto& provided : spec_.provides)
      if (!claimed.contains(provided.facet) && provided.holds(values_))
        find("provides '" + provided.facet + "'", "it claims nothing of it", rules::kProvides);
    log_.held("claims what it provides");
  }

  std::optional<int> use_in(const Compilation& c) const { return galley::use_in(c, spec_); }

  /// A call of `claim` by hand.
  struct Asked {
    uint64_t claims = 0;
    galley_status status = GALLEY_OK;
    std::string text;
  };
  Asked ask(Compilation& c, uint32_t facet, std::vector<galley_subject> subjects, uint64_t flags = 0) const {
    const LoadedStrategy& s = *c.strategies[static_cast<size_t>(*use_in(c))];
    Asked out;
    std::vector<const galley_subject*> pointers;
    for (const galley_subject& subject : subjects) pointers.push_back(&subject);
    auto call = new_struct<galley_claim_call>();
    call.facet = facet;
    call.subjects = pointers.data();
    call.n_subjects = pointers.size();
    call.context = &out;
    call.flags = flags;
    call.claim = [](void* to, uint64_t, const galley_claim_value*, galley_error*) -> galley_status {
      ++static_cast<Asked*>(to)->claims;
      return GALLEY_OK;
    };
    Author author = c.graph.author;
    author.use = *use_in(c);
    const Status called = call_strategy(c, author, "claim", [&](galley_graph* graph, galley_error* error) {
      out.status = s.claim()->claim(s.instance(), GraphHandle::reader(), graph, &call, error);
      out.text = error->text;
      return GALLEY_OK;
    });
    if (!called) out = {0, GALLEY_FAILED, called.error().cause};
    return out;
  }

  std::vector<Who> subjects(const Compilation& c) const {
    std::vector<Who> out;
    for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t) {
      const GraphTensor& x = c.graph.tensor(t);
      if (x.parameter_kind()) out.push_back({GALLEY_SUBJECT_PARAMETER, t});
      else if (x.kind == GALLEY_KIND_GRADIENT) out.push_back({GALLEY_SUBJECT_GRADIENT, t});
      else if (x.kind == GALLEY_KIND_STATE && !x.written_forward()) out.push_back({GALLEY_SUBJECT_STATE, t});
    }
    for (const Section section : {Section::Forward, Section::Window, Section::Update})
      for (const galley_node n : c.graph.section(section)) out.push_back({GALLEY_SUBJECT_NODE, 0, n});
    out.push_back({GALLEY_SUBJECT_RUN});
    return out;
  }

  std::vector<std::string> claims_seen(Compilation& c) const {
    std::vector<std::string> out;
    const auto use = use_in(c);
    if (!use || !c.strategies[static_cast<size_t>(*use)]->claim()) return out;
    for (const uint32_t facet : kFacets) {
      std::vector<galley_subject> asked;
      for (const Who& who : subjects(c))
        if (fits(facet, who.kind)) asked.push_back(subject_of(c, who));
      if (!asked.empty() && ask(c, facet, asked).claims > 0) out.push_back(facet_name(facet));
    }
    return out;
  }

  static constexpr uint32_t kFacets[] = {
      GALLEY_FACET_TRAINABLE, GALLEY_FACET_STORAGE,   GALLEY_FACET_COMPUTE, GALLEY_FACET_GRADIENT_DTYPE, GALLEY_FACET_GRADIENT_LIFETIME,
      GALLEY_FACET_UPDATE,    GALLEY_FACET_PLACEMENT, GALLEY_FACET_SHARD,   GALLEY_FACET_WINDOW};
  static bool fits(uint32_t facet, uint32_t kind) {
    switch (facet) {
      case GALLEY_FACET_TRAINABLE:
      case GALLEY_FACET_UPDATE: return kind == GALLEY_SUBJECT_PARAMETER;
      case GALLEY_FACET_STORAGE: return kind == GALLEY_SUBJECT_PARAMETER || kind == GALLEY_SUBJECT_STATE;
      case GALLEY_FACET_COMPUTE: return kind == GALLEY_SUBJECT_NODE;
      case GALLEY_FACET_GRADIENT_DTYPE:
      case GALLEY_FACET_GRADIENT_LIFETIME: return kind == GALLEY_SUBJECT_GRADIENT;
      case GALLEY_FACET_WINDOW: return kind == GALLEY_SUBJECT_RUN;
      default: return kind == GALLEY_SUBJECT_PARAMETER || kind == GALLEY_SUBJECT_GRADIENT || kind == GALLEY_SUBJECT_STATE;
    }
  }

  /// Calls of newer hosts, and about parameters that are frozen.
  void check_calls() {
    const std::string done = "the calls are made";
    (void)plan([&](Compilation& c, const PassInfo& pass) -> Status {
      if (std::string_view(pass.name) != "update") return ok();
      const auto use = use_in(c);
      const LoadedStrategy& s = *c.strategies[static_cast<size_t>(*use)];
      if (s.claim()) check_claims(c);
      if (s.update()) check_builds(c, s, *use);
      return plugin_error(done);
    });
  }

  void check_claims(Compilation& c) {
    for (const uint32_t facet : kFacets) {
      std::vector<galley_subject> asked, frozen;
      for (const Who& who : subjects(c)) {
        if (!fits(facet, who.kind)) continue;
        asked.push_back(subject_of(c, who));
        frozen.push_back(asked.back());
        frozen.back().trainable = 0;
      }
      if (asked.empty()) continue;
      const Asked said = ask(c, facet, asked, kUnknownFlag);
      const std::string where = std::string("claim of '") + facet_name(facet) + "' with an unknown flag";
      if (said.status == GALLEY_OK) return find(where, "it answers", rules::kFlags);
      if (said.text.empty()) return find(where, "it refuses without a word", rules::kText);
      if (facet == GALLEY_FACET_UPDATE && ask(c, facet, frozen).claims > 0)
        find("claim of 'update'", "it claims the update of a parameter that is frozen (galley_subject.trainable is 0)", rules::kFrozen);
    }
    log_.held("claims: unknown flags, frozen parameters");
  }

  void check_builds(Compilation& c, const LoadedStrategy& s, int use) {
    const auto call_with = [&](uint32_t purpose, uint64_t flags, size_t* made, std::string* text) {
      std::vector<galley_tensor> parameters = c.decisions.trainable, gradients;
      const bool step = s.update()->stages & GALLEY_STAGE_STEP;
      if (step) std::erase_if(parameters, [&](galley_tensor t) { return c.graph.tensor(t).update_use != use; });
      for (const galley_tensor t : parameters) gradients.push_back(c.graph.tensor(t).gradient);
      auto call = new_struct<galley_update_call>();
      call.stage = s.update()->stages & (~s.update()->stages + 1);
      if (step) call.stage = GALLEY_STAGE_STEP;
      call.purpose = purpose;
      call.parameters = parameters.data();
      call.gradients = gradients.data();
      call.n = parameters.size();
      call.flags = flags;
      galley_status status = GALLEY_OK;
      const size_t before = c.graph.section(Section::Evaluate).size();
      const Status called = call_strategy(c, {Section::Evaluate, use, -1, 0, "evaluate.", call.stage}, "build",
                                          [&](galley_graph* handle, galley_error* error) {
                                            status = s.update()->build(s.instance(), GraphHandle::update_verbs(), handle, &call, error);
                                            *text = error->text;
                                            return GALLEY_OK;
                                          });
      *made = c.graph.section(Section::Evaluate).size() - before;
      return called ? status : GALLEY_FAILED;
    };
    size_t made = 0;
    std::string text;
    if (call_with(GALLEY_PURPOSE_TRAIN, kUnknownFlag, &made, &text) == GALLEY_OK)
      find("build with an unknown flag", "it builds", rules::kFlags);
    else if (text.empty()) find("build with an unknown flag", "it refuses without a word", rules::kText);
    constexpr uint32_t unknown = 99;
    if (call_with(unknown, 0, &made, &text) != GALLEY_OK || made > 0)
      find("build for a purpose that it does not know", made ? "it makes " + std::to_string(made) + " nodes" : "it fails: " + text,
           rules::kPurpose);
    log_.held("build: unknown flags and purposes");
  }

  const CheckContext& context_;
  const StrategySpec& spec_;
  TestLog& log_;
  std::optional<Use> use_;
  Table values_;  // of all options, defaults included
  std::set<std::string> asked_;
  std::filesystem::path path_;
};

}  // namespace

Status check_strategy(const CheckContext& context, const StrategySpec& strategy, TestLog& log) {
  return StrategyCheck(context, strategy, log).run();
}

}  // namespace galley
