#include "host/tools/compare/certify.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "host/plugins/library.hpp"
#include "host/proofs/proofs.hpp"
#include "host/session/session.hpp"
#include "host/tools/compare/certify_judge.hpp"
#include "host/tools/compare/control.hpp"
#include "host/tools/compare/tensor_distance.hpp"
#include "host/tools/compare/verdict.hpp"
#include "host/tools/inference/gradients.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;
using Beside = Against::Arm;
using Edit = std::function<void(Recipe&)>;

/// Schedules are made for so many steps where the recipe says epochs: only the first of them are made.
constexpr int64_t kStandIn = 1000;
/// Rows and positions of the run under references, which compute in double precision and slowly: fewer find the same mistakes. A model of
/// more parameters than this takes minutes.
constexpr int64_t kReferenceRows = 1, kReferenceLength = 16, kReferenceParameters = 20'000'000;
/// Where the arenas of the second run begin: other pages, and other lines of each page. The alignments of all memory classes divide it.
constexpr int64_t kShift = (int64_t{1} << 21) + 4096 + 2048;

/// As all arms are: deterministic, no validation, the model that the last step leaves in full.
void prepare(Recipe& recipe) {
  recipe.validate = {};
  recipe.evaluate = {};
  recipe.save = {};
  recipe.tune = false;
  recipe.deterministic = true;
  if (recipe.epochs > 0 && recipe.steps == 0) recipe.steps = kStandIn;
  recipe.epochs = 0;
}

struct Measured {
  std::optional<double> start;  ///< the loss before the first update, as evaluation computes it
  std::vector<double> losses;   ///< of the steps
  fs::path folder;              ///< with "origin", "gradients", "gradients 2" … and "weights"
};
std::string window_folder(int64_t window) { return window == 0 ? "gradients" : "gradients " + std::to_string(window + 1); }

/// What of an arm is to be measured.
struct Wanted {
  bool start = false, gradients = false, updates = false;
  bool origin = false;  ///< the weights before the first update, too
  int64_t windows = 1;  ///< of gradients
  int64_t runs() const { return int64_t{start} + gradients + updates; }
};
Wanted wanted_for(Beside arm, Exactness declared) {
  const bool whole = arm == Beside::Without || arm == Beside::Instead;
  return {arm == Beside::Start, whole || arm == Beside::Gradients, whole, false,
          declared == Exactness::Approximate && arm == Beside::Without ? kCertifyWindows : 1};
}

Status make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? Status(run_error("cannot create " + folder.string() + ": " + error.message())) : ok();
}

/// Of what two arms have written into a folder of theirs.
Result<Distances> distances_of(const fs::path& a, const fs::path& b, const fs::path& origin = {}) {
  return tensor_distances(TRY(tensor_files_below(a)), TRY(tensor_files_below(b)),
                          origin.empty() ? TensorFiles() : TRY(tensor_files_below(origin)));
}

/// An instruction with all that its kernel may go by.
std::string kind_of(const Instruction& code) {
  std::string out = op_text(*code.launch());
  for (const LaunchNode& node : code.launch()->nodes) out += node.attrs.key();
  for (const auto* operands : {&code.inputs, &code.outputs})
    for (const Operand& o : *operands) out += "|" + dtype_text(o.dtype) + shape_text(o.shape) + (o.format ? o.format->name : "");
  return out;
}

class Certifier {
 public:
  Certifier(const fs::path& recipe, const CertifyOptions& options) : recipe_(recipe), options_(options) {}
  Result<Certified> run();

 private:
  struct Use {
    Beside arm = Beside::None;
    const LoadedStrategy* loaded = nullptr;
    int64_t factor = 1;  ///< of the batch
    std::string label;   ///< as messages of the executor name it
    int64_t own = 0;     ///< instructions that compute its ops, or read a format of its plugin
  };

  Result<std::unique_ptr<Study>> study_of(const Edit& edit, Purpose purpose, bool base = false, int64_t threads = 0) const;
  Status begin(const std::string& what);
  Result<Measured> measure(const std::string& name, const Edit& edit, Wanted wanted, bool other_is_base);
  Status update(const Edit& edit, bool origin, Measured& out);
  Status repeat();
  Result<Footprints> traced(bool elsewhere);
  void look(const Study& whole);
  Result<Edit> edit_of(size_t use) const;
  Status hold(size_t use);
  Status judge(const Measured& other, const Use& use, Certificate& out) const;
  Status refer(bool all);
  bool theirs(const Study& s, const Instruction& code) const;
  void remove(const Measured& arm) const {
    std::error_code error;
    if (!options_.keep) fs::remove_all(arm.folder, error);
  }

  const fs::path& recipe_;
  const CertifyOptions& options_;
  std::unique_ptr<Study> whole_study_;
  std::vector<Use> uses_;
  Measured whole_;
  std::optional<Measured> control_;
  /// Of the control beside the recipe as it is.
  Distances control_gradients_, control_weights_;
  Certified out_;
  int64_t done_ = 0, all_ = 0;
  bool in_16_bit_ = false;
};

/// `base`: beside "start", where nothing but what the model has itself and the recipe trains is trained. So what others decide for
/// parameters that are not trained, such as a quantizer, is what they decide for them in the recipe.
Result<std::unique_ptr<Study>> Certifier::study_of(const Edit& edit, Purpose purpose, bool base, int64_t threads) const {
  StudyOptions options = options_.study;
  options.purpose = purpose;
  if (base) {
    options.trainable.emplace();
    const Graph& graph = whole_study_->draft->graph;
    for (galley_tensor id = 1; id <= graph.tensor_count(); ++id) {
      const GraphTensor& x = graph.tensor(id);
      if (!x.parameter_kind() || !x.trainable()) continue;
      options.trainable->insert(x.name);
      // An adapter that trains a layer whole may put a parameter of its own in the layer's place, which begins as it. What begins as a
      // tensor that is not kept reads the first value of it.
      for (const galley_tensor from : x.initial.inputs) {
        const GraphTensor& other = graph.tensor(from);
        if (other.shape == x.shape) options.trainable->insert(other.name.starts_with("first ") ? other.name.substr(6) : other.name);
      }
    }
  }
  if (threads > 0) {
    Target other = whole_study_->target;
    other.threads = threads;
    options.target_text = target_toml(other);
  }
  options.warn = {};
  options.edit = [&](Recipe& recipe) {
    prepare(recipe);
    if (edit) edit(recipe);
  };
  return study(recipe_, options);
}

Status Certifier::begin(const std::string& what) {
  if (options_.stop()) return Error{Exit::Interrupted, "interrupted before " + what, "nothing is left to go on from; start it again"};
  if (options_.begins) options_.begins(done_, all_, what);
  ++done_;
  return ok();
}

Status Certifier::update(const Edit& edit, bool origin, Measured& out) {
  const auto s = TRY(study_of(edit, Purpose::Train));
  const auto session = TRY(Session::open(*s, TRY(open_source(*s))));
  TRY_STATUS(session->start());
  for (const char* folder : {"origin", "weights"}) TRY_STATUS(make_folder(out.folder / folder));
  if (origin) TRY_STATUS(session->export_model(out.folder / "origin"));
  const int64_t steps = std::min(kCertifySteps, s->recipe.steps);
  for (int64_t step = 0; step < steps; ++step) {
    TRY_STATUS(session->enqueue());
    out.losses.push_back(TRY(session->finished()).loss);
  }
  return session->export_model(out.folder / "weights");
}

/// `other_is_base`: beside "start" nothing of the other recipe is trained.
Result<Measured> Certifier::measure(const std::string& name, const Edit& edit, Wanted wanted, bool other_is_base) {
  Measured out;
  out.folder = options_.directory / name;
  TRY_STATUS(make_folder(out.folder));
  if (wanted.start) {
    TRY_STATUS(begin(name + ", loss"));
    const auto s = TRY(study_of(edit, Purpose::Evaluate, other_is_base));
    out.start = TRY(first_loss(*TRY(Session::open(*s, TRY(open_source(*s))))));
  }
  if (wanted.gradients) {
    TRY_STATUS(begin(name + ", gradients"));
    const auto s = TRY(study_of(edit, Purpose::Gradients));
    const auto session = TRY(Session::open(*s, TRY(open_source(*s))));
    for (int64_t window = 0; window < std::min(wanted.windows, s->recipe.steps); ++window) {
      TRY_STATUS(make_folder(out.folder / window_folder(window)));
      NewFile file = TRY(NewFile::named(out.folder / window_folder(window) / "gradients.safetensors"));
      TRY_STATUS(write_gradients(*session, file, window));
    }
  }
  if (wanted.updates) {
    TRY_STATUS(begin(name + ", updates"));
    TRY_STATUS(update(edit, wanted.origin, out));
  }
  return out;
}

/// What each use declares, and is held against with the options that it has.
void Certifier::look(const Study& whole) {
  for (size_t i = 0; i < whole.loaded.size(); ++i) {
    const LoadedStrategy& loaded = *whole.loaded[i];
    const Against& against = loaded.spec().against;
    Use& use = uses_.emplace_back();
    use.loaded = &loaded;
    use.label = loaded.name() + " (" + loaded.place().text() + ")";
    const std::vector<std::string>& formats = loaded.plugin().manifest.formats;
    const auto in_format = [&](const Operand& o) { return o.format && std::ranges::find(formats, o.format->name) != formats.end(); };
    for (const Segment& segment : whole.program.segments)
      for (const Instruction& code : segment.code)
        use.own += code.launch() && (code.strategy == use.label || std::ranges::any_of(code.inputs, in_format));
    Certificate& c = out_.strategies.emplace_back();
    c.strategy = loaded.name();
    c.place = loaded.place().text();
    c.plugin = loaded.plugin().manifest.id;
    c.declared = loaded.spec().exactness;
    c.against = "references";
    if (!against.holds(loaded.options().values(), whole.recipe.uses[i].options)) continue;
    use.arm = against.arm;
    const Value* factor = against.batch.empty() ? nullptr : loaded.options().find(against.batch);
    if (factor && factor->as<int64_t>()) use.factor = *factor->as<int64_t>();
    switch (use.arm) {
      case Beside::None: break;
      case Beside::Without: c.against = use.factor == 1 ? "without" : "batch x " + std::to_string(use.factor); break;
      case Beside::Gradients: c.against = "gradients"; break;
      case Beside::Start: c.against = "start"; break;
      case Beside::Instead: c.against = against.strategy; break;
    }
  }
}

/// Makes the recipe that a use is held against.
Result<Edit> Certifier::edit_of(size_t use) const {
  const Use& of = uses_[use];
  if (of.arm != Beside::Instead) {
    if (of.factor != 1 && !whole_study_->recipe.batch) return recipe_error("the data brings its own batch, which cannot be made larger");
    return Edit([use, factor = of.factor](Recipe& recipe) {
      recipe.uses.erase(recipe.uses.begin() + static_cast<std::ptrdiff_t>(use));
      if (factor != 1) recipe.batch = *recipe.batch * factor;
    });
  }
  const std::string& name = of.loaded->spec().against.strategy;
  const StrategySpec* other = nullptr;
  for (const auto& plugin : whole_study_->plugins->all())
    if (!other) other = plugin->manifest.strategy(name);
  if (!other) return recipe_error("there is no strategy '" + name + "' here");
  return Edit([use, name, other](Recipe& recipe) {
    recipe.uses[use].name = name;
    std::erase_if(recipe.uses[use].options, [&](const auto& option) { return !other->option(option.first); });
  });
}

Status Certifier::judge(const Measured& other, const Use& use, Certificate& out) const {
  const Wanted wanted = wanted_for(use.arm, out.declared);
  const bool whole = use.arm == Beside::Without || use.arm == Beside::Instead;
  const Against& against = use.loaded->spec().against;
  const Allowed allowed = {out.declared, against.within, against.within_loss, in_16_bit_, whole && out.declared != Exactness::Approximate};
  // A squared error may be next to nothing in one step.
  double usual = 0;
  size_t count = 0;
  for (const Measured* arm : {&other, &whole_}) {
    for (const double loss : arm->losses) usual += std::fabs(loss), ++count;
    if (arm->start) usual += std::fabs(*arm->start), ++count;
  }
  usual = count ? usual / static_cast<double>(count) : 0;
  const auto pair = [&](const std::string& of, double loss, double with_out, size_t step) {
    LossPair out_pair = {of, loss, with_out, {}, usual};
    if (control_ && step < control_->losses.size() && step < whole_.losses.size())
      out_pair.control = relative_difference(control_->losses[step], whole_.losses[step]);
    return out_pair;
  };
  bool holds = true;
  if (other.start) {
    LossPair start = {"before the first update", *whole_.start, *other.start, {}, usual};
    holds = judge_losses({start}, allowed, out);
  }
  if (wanted.gradients && wanted.windows > 1) {
    std::vector<Distances> windows;
    std::error_code error;
    for (int64_t w = 0; w < wanted.windows && fs::is_directory(whole_.folder / window_folder(w), error); ++w)
      windows.push_back(TRY(distances_of(whole_.folder / window_folder(w), other.folder / window_folder(w))));
    holds = judge_windows(windows, allowed, out) && holds;
  } else if (wanted.gradients) {
    const Distances seen = TRY(distances_of(whole_.folder / "gradients", other.folder / "gradients"));
    holds = judge_tensors(TensorsOf::Gradients, seen, control_ ? &control_gradients_ : nullptr, allowed, out) && holds;
  }
  if (wanted.updates) {
    std::vector<LossPair> pairs;
    for (size_t i = 0; i < std::min(other.losses.size(), whole_.losses.size()); ++i)
      pairs.push_back(pair("of step " + std::to_string(i + 1), whole_.losses[i], other.losses[i], i));
    holds = judge_losses(pairs, allowed, out) && holds;
    const Distances seen = TRY(distances_of(whole_.folder / "weights", other.folder / "weights", whole_.folder / "origin"));
    holds = judge_tensors(TensorsOf::Updates, seen, control_ ? &control_weights_ : nullptr, allowed, out) && holds;
  }
  out.verdict = holds ? Certificate::Verdict::Holds : Certificate::Verdict::Breach;
  return ok();
}

Status Certifier::hold(size_t use) {
  Use& of = uses_[use];
  Certificate& out = out_.strategies[use];
  if (of.arm == Beside::None) return ok();
  const int64_t before = done_;
  const Wanted wanted = wanted_for(of.arm, out.declared);
  const Result<Edit> edit = edit_of(use);
  const std::string name = of.arm == Beside::Instead ? "with " + out.against + " for " + out.strategy
                                                     : "without " + out.strategy + (use ? " " + std::to_string(use + 1) : "");
  const Result<Measured> other = edit ? measure(name, *edit, wanted, of.arm == Beside::Start) : Result<Measured>(edit.error());
  done_ = before + wanted.runs();
  if (!other) {
    if (other.error().exit == Exit::Interrupted) return other.error();
    out.sentence = (of.arm == Beside::Instead ? "with " + out.against : std::string("without it")) + ": " + other.error().cause;
    out.against = "references";  // which are left to hold it against
    of.arm = Beside::None;
    return ok();
  }
  TRY_STATUS(judge(*other, of, out));
  remove(*other);
  return ok();
}

/// Whether a strategy's node or format, or somebody else's op or kernel is part of an instruction.
bool Certifier::theirs(const Study& s, const Instruction& code) const {
  const auto foreign = [&](const std::string& id) {
    const Plugin* plugin = s.plugins->find(id);
    return plugin && !s.built_in(*plugin);
  };
  const Launch& launch = *code.launch();
  if (!code.strategy.empty() || foreign(plugin_of(launch.kernel))) return true;
  if (std::ranges::any_of(code.inputs, [](const Operand& o) { return o.format != nullptr; })) return true;
  const auto used = [&](const std::string& id) {
    return std::ranges::any_of(s.loaded, [&](const auto& loaded) { return loaded->plugin().manifest.id == id; });
  };
  return std::ranges::any_of(launch.nodes, [&](const LaunchNode& node) {
    const std::string& id = plugin_of(node.op);
    return foreign(id) || used(id);
  });
}

/// The recipe as it is, two updates without a check, for what each instruction leaves: here, or at other addresses and with another number
/// of threads.
Result<Footprints> Certifier::traced(bool elsewhere) {
  const auto s = TRY(study_of({}, Purpose::Train, false, elsewhere ? out_.other_threads : 0));
  ReferenceReport report;
  Footprints trace;
  SessionOptions options;
  options.watching = watched_by({.reference = &report, .scope = {.computes = [](const Instruction&) { return false; }, .trace = &trace}});
  options.shift = elsewhere ? kShift : 0;
  const auto session = TRY(Session::open(*s, TRY(open_source(*s)), options));
  TRY_STATUS(session->start());
  for (int64_t step = 0; step < std::min(kCertifySteps, s->recipe.steps); ++step) {
    TRY_STATUS(session->enqueue());
    TRY(session->finished());
  }
  return trace;
}

/// The recipe once more, elsewhere: what depends on an address, on which thread came first or on what a run before has left is other bytes.
Status Certifier::repeat() {
  TRY_STATUS(begin("the same, elsewhere"));
  const Target& target = whole_study_->target;
  // A device that works by itself has its own.
  out_.other_threads = !target.synchronous ? target.threads : target.threads > 1 ? 1 : 2;
  Measured again;
  again.folder = options_.directory / "again";
  TRY_STATUS(make_folder(again.folder / "weights"));
  {
    const auto s = TRY(study_of({}, Purpose::Train, false, out_.other_threads));
    SessionOptions options;
    options.shift = kShift;
    const auto session = TRY(Session::open(*s, TRY(open_source(*s)), options));
    TRY_STATUS(session->start());
    for (size_t step = 0; step < whole_.losses.size(); ++step) {
      TRY_STATUS(session->enqueue());
      again.losses.push_back(TRY(session->finished()).loss);
    }
    TRY_STATUS(session->export_model(again.folder / "weights"));
  }
  bool same = true;
  for (size_t i = 0; i < again.losses.size(); ++i) same = same && same_bits(again.losses[i], whole_.losses[i]);
  const Distances seen = TRY(distances_of(again.folder / "weights", whole_.folder / "weights"));
  for (const auto& [name, d] : seen.tensors) same = same && d.alike;
  remove(again);
  if (same) return ok();
  // Which instruction it is, the bytes of each one say.
  const Footprints here = TRY(traced(false)), elsewhere = TRY(traced(true));
  const size_t n = std::min(here.written.size(), elsewhere.written.size());
  size_t first = 0;
  while (first < n && here.written[first].bytes == elsewhere.written[first].bytes) ++first;
  out_.unsteady = (first < n ? here.written[first].place : std::string("the recipe")) + " leaves other bytes at other addresses and with " +
                  std::to_string(out_.other_threads) + (out_.other_threads == 1 ? " thread" : " threads");
  for (size_t i = 0; i < uses_.size() && first < n; ++i) {
    if (here.written[first].place.find(" of " + uses_[i].label) == std::string::npos) continue;
    Certificate& of = out_.strategies[i];
    of.verdict = Certificate::Verdict::Breach;
    note_of(of) += "it computes other numbers in another run: " + out_.unsteady;
  }
  return ok();
}

/// The recipe under the ops' references: what they find names an instruction, and whose it is. `all`: of all instructions; else of what
/// strategies and other people's plugins do, one of each kind.
Status Certifier::refer(bool all) {
  const auto run = [&](bool small) -> Status {
    const auto s = TRY(study_of(
        [&](Recipe& recipe) {
          if (!small) return;
          if (recipe.batch) recipe.batch = std::min(*recipe.batch, kReferenceRows);
          if (recipe.length) recipe.length = std::min(*recipe.length, kReferenceLength);
        },
        Purpose::Train));
    out_.reference = {};
    std::set<std::string> kinds;
    ReferenceScope scope = {.rules = true};
    if (!all) scope.computes = [&](const Instruction& code) { return theirs(*s, code) && kinds.insert(kind_of(code)).second; };
    SessionOptions options;
    options.watching = watched_by({.reference = &out_.reference, .scope = scope});
    const auto session = TRY(Session::open(*s, TRY(open_source(*s)), options));
    TRY_STATUS(session->start());
    for (int64_t step = 0; step < std::min(kCertifySteps, s->recipe.steps); ++step) {
      TRY_STATUS(session->enqueue());
      TRY(session->finished());
    }
    return ok();
  };
  TRY_STATUS(begin("references"));
  Status ran = run(true);
  if (!ran && ran.error().exit != Exit::Plugin) ran = run(false);
  std::string note;
  if (!ran) {
    note = ran.error().cause;
    const ReferenceReport& seen = out_.reference;
    const auto made_by = [&](const Use& use) {
      const std::vector<std::string>& formats = use.loaded->plugin().manifest.formats;
      return seen.fault == ReferenceReport::Fault::Promise ? std::ranges::find(formats, seen.format) != formats.end()
                                                           : note.find(" of " + use.label) != std::string::npos;
    };
    const auto at = static_cast<size_t>(std::ranges::find_if(uses_, made_by) - uses_.begin());
    out_.reference_note = "the run under the ops' references ended early";
    if (ran.error().exit != Exit::Plugin) out_.reference_note += ": " + note;
    else if (at == uses_.size()) out_.fault = note;
    else {
      Certificate& of = out_.strategies[at];
      of.verdict = Certificate::Verdict::Breach;
      note_of(of) += (seen.fault == ReferenceReport::Fault::Rule      ? "its gradient is not that of its op: "
                      : seen.fault == ReferenceReport::Fault::Promise ? "its format is not as near as it promises: "
                                                                      : "its op is not what its reference computes: ") +
                     note;
    }
  }
  for (size_t i = 0; i < uses_.size(); ++i) {
    Certificate& of = out_.strategies[i];
    if (uses_[i].arm != Beside::None || of.verdict == Certificate::Verdict::Breach) continue;
    if (ran && uses_[i].own > 0) of.verdict = Certificate::Verdict::Holds;
    else if (!ran) note_of(of) += out_.reference_note;
    else if (of.sentence.empty()) of.sentence = "it has no ops of its own, and its manifest says nothing to hold it against";
  }
  return ok();
}

Result<Certified> Certifier::run() {
  whole_study_ = TRY(study_of({}, Purpose::Train));
  look(*whole_study_);
  in_16_bit_ =
      std::ranges::any_of(whole_study_->program.tensors, [](const auto& t) { return t.dtype == GALLEY_BF16 || t.dtype == GALLEY_F16; });
  if (uses_.empty()) return recipe_error(recipe_.string() + ": the recipe uses no strategy, and nothing can be held");
  using References = CertifyOptions::References;
  // All of a small model's instructions; of a larger one, what strategies do, where there is room for what reference mode keeps.
  const bool all = options_.references == References::Yes || whole_study_->program.parameters <= kReferenceParameters;
  const bool references = options_.references != References::No && (all || 2 * whole_study_->host_memory() < machine_memory());
  Wanted wanted = {false, false, true, true, 1};  // which the second run is held against
  bool band = false;
  int64_t runs = 0;
  for (const Use& use : uses_) {
    const Wanted one = wanted_for(use.arm, use.loaded->spec().exactness);
    wanted.start = wanted.start || one.start;
    wanted.gradients = wanted.gradients || one.gradients;
    wanted.windows = std::max(wanted.windows, one.windows);
    band = band || (one.gradients && use.loaded->spec().exactness == Exactness::Rounding);
    runs += one.runs();
  }
  const Wanted of_control = {false, wanted.gradients, wanted.updates, false, 1};
  all_ = runs + wanted.runs() + (band ? of_control.runs() : 0) + 1 + int64_t{references};
  out_.steps = std::min(kCertifySteps, whole_study_->recipe.steps);
  whole_ = TRY(measure("whole", {}, wanted, false));
  if (band) {
    const std::string control = TRY(control_strategy(*whole_study_));
    const Edit with_control = [&](Recipe& recipe) { recipe.uses.push_back({control, {}, {"galley certify", 0}, {}}); };
    control_ = TRY(measure("control", with_control, of_control, false));
    if (wanted.gradients) control_gradients_ = TRY(distances_of(control_->folder / "gradients", whole_.folder / "gradients"));
    if (wanted.updates) control_weights_ = TRY(distances_of(control_->folder / "weights", whole_.folder / "weights"));
    remove(*control_);
  }
  for (size_t i = 0; i < uses_.size(); ++i) TRY_STATUS(hold(i));
  TRY_STATUS(repeat());
  remove(whole_);
  if (references) {
    TRY_STATUS(refer(all));
  } else {
    for (Certificate& c : out_.strategies)
      if (c.against == "references")
        note_of(c) += options_.references == References::No
                          ? "left out: --no-references"
                          : "left out for a model of this size: --references, which takes twice the memory";
  }
  return std::move(out_);
}

}  // namespace

Result<Certified> certify(const fs::path& recipe, const CertifyOptions& options) { return Certifier(recipe, options).run(); }

}  // namespace galley
