#include "host/compare/certify.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "host/compare/printed.hpp"
#include "host/compare/tensor_distance.hpp"
#include "host/compare/verdict.hpp"
#include "host/session/session.hpp"

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
/// Relative differences that any other order of sums in F32 makes: of a gradient, and of a weight, which every update rounds.
constexpr double kGradientFloor = 1e-5, kWeightFloor = 0x1p-22;
/// The same of a loss and a gradient where some numbers are kept in 16 bit, whose rounding is coarser.
constexpr double kLossFloor16 = 0x1p-12, kGradientFloor16 = 0x1p-7;
/// Of an update whose gradients differ: some optimizers compute in BF16, and make steps of half a percent of what differs by 1e-7.
constexpr double kFollowFloor = 0x1p-6;
/// A tensor's difference is relative to its own norm, or to this share of all tensors' where that is larger: what is zero but for rounding,
/// as the gradient of a key's bias is, differs by as much as it is.
constexpr double kLeastShare = 1e-3;

/// As all arms are: deterministic, no validation, the model that the last step leaves in full.
void prepare(Recipe& recipe) {
  recipe.validate = {};
  recipe.save = {};
  recipe.tune = false;
  recipe.deterministic = true;
  if (recipe.epochs > 0 && recipe.steps == 0) recipe.steps = kStandIn;
  recipe.epochs = 0;
}

struct Measured {
  std::optional<double> start;  ///< the loss before the first update, as evaluation computes it
  std::vector<double> losses;   ///< of the steps
  fs::path folder;              ///< with "origin", "gradients" and "weights"
};

/// What of an arm is to be measured.
struct Wanted {
  bool start = false, gradients = false, updates = false;
  bool origin = false;  ///< the weights before the first update, too
  int64_t runs() const { return int64_t{start} + gradients + updates; }
};
Wanted wanted_for(Beside arm) {
  const bool whole = arm == Beside::Without || arm == Beside::Instead;
  return {arm == Beside::Start, whole || arm == Beside::Gradients, whole, false};
}

Status make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? Status(run_error("cannot create " + folder.string() + ": " + error.message())) : ok();
}

double relative_loss(double a, double b) { return same_bits(a, b) ? 0 : relative_difference(a, b); }

/// Of what two arms have written into a folder of theirs.
Result<Distances> distances_of(const fs::path& a, const fs::path& b, const fs::path& origin = {}) {
  return tensor_distances(TRY(tensor_files_below(a)), TRY(tensor_files_below(b)),
                          origin.empty() ? TensorFiles() : TRY(tensor_files_below(origin)));
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

  Result<std::unique_ptr<Study>> study_of(const Edit& edit, Purpose purpose, bool frozen = false) const;
  Status begin(const std::string& what);
  Result<Measured> measure(const std::string& name, const Edit& edit, Wanted wanted, bool other_is_base);
  Status update(const Edit& edit, bool origin, Measured& out);
  void look(const Study& whole);
  Result<Edit> edit_of(size_t use) const;
  Status hold(size_t use);
  void judge(const Measured& other, const Use& use, Certificate& out) const;
  bool judge_losses(const Measured& other, const Use& use, Certificate& out) const;
  bool judge_tensors(const Measured& other, const char* folder, const Use& use, Certificate& out) const;
  Status refer();
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
  double loss_floor_ = kBandFloor, gradient_floor_ = kGradientFloor;
};

Result<std::unique_ptr<Study>> Certifier::study_of(const Edit& edit, Purpose purpose, bool frozen) const {
  StudyOptions options = options_.study;
  options.purpose = purpose;
  options.frozen = frozen;
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
  TRY_STATUS(make_folder(out.folder / "gradients"));
  if (wanted.start) {
    TRY_STATUS(begin(name + ", loss"));
    const auto s = TRY(study_of(edit, Purpose::Evaluate, other_is_base));
    out.start = TRY(TRY(Session::open(*s, TRY(open_source(*s))))->first_loss());
  }
  if (wanted.gradients) {
    TRY_STATUS(begin(name + ", gradients"));
    const auto s = TRY(study_of(edit, Purpose::Gradients));
    NewFile file = TRY(NewFile::named(out.folder / "gradients" / "gradients.safetensors"));
    TRY_STATUS(write_gradients(*TRY(Session::open(*s, TRY(open_source(*s)))), file));
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
        use.own += code.action == Action::Kernel && (code.strategy == use.label || std::ranges::any_of(code.inputs, in_format));
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

/// A strategy's sentence, to which something is added.
std::string& note_of(Certificate& c) {
  if (!c.sentence.empty()) c.sentence += "; ";
  return c.sentence;
}

/// A strategy's sentence grows by one difference; whether that is no breach.
bool note(bool holds, const std::string& text, Certificate& out) {
  if (!holds) note_of(out) += text;
  return holds;
}

bool Certifier::judge_losses(const Measured& other, const Use& use, Certificate& out) const {
  const auto allowed = [&](size_t step) {
    double band = loss_floor_;
    for (size_t i = 0; control_ && i <= step && i < control_->losses.size(); ++i)
      band = std::max(band, kBandSlack * relative_loss(control_->losses[i], whole_.losses[i]));
    return out.declared == Exactness::Bits       ? 0
           : out.declared == Exactness::Rounding ? band
                                                 : use.loaded->spec().against.within.value_or(HUGE_VAL);
  };
  const auto hold = [&](const std::string& what, double a, double b, size_t step) {
    const double difference = relative_loss(a, b);
    out.loss.largest = std::max(out.loss.largest.value_or(0), difference);
    const bool holds = out.declared == Exactness::Bits ? same_bits(a, b) : difference <= allowed(step);
    return note(holds, printed("the loss %s is %.9g, and %.9g without", what.c_str(), a, b), out);
  };
  if (other.start) return hold("before the first update", *whole_.start, *other.start, 0);
  bool holds = true;
  for (size_t i = 0; i < std::min(other.losses.size(), whole_.losses.size()) && holds; ++i)
    holds = hold("of step " + std::to_string(i + 1), whole_.losses[i], other.losses[i], i);
  return holds;
}

bool Certifier::judge_tensors(const Measured& other, const char* folder, const Use& use, Certificate& out) const {
  const bool weights = !std::strcmp(folder, "weights");
  const Result<Distances> seen =
      distances_of(whole_.folder / folder, other.folder / folder, weights ? whole_.folder / "origin" : fs::path());
  if (!seen) return note(false, seen.error().cause, out);
  const std::optional<double> within = use.loaded->spec().against.within;
  const auto& control = (weights ? control_weights_ : control_gradients_).tensors;
  // A tensor that an update has not moved has no measure of its own: it is frozen, or the rate is 0.
  const auto measure = [&](const TensorDistance& d) { return weights ? d.moved : d.norm; };
  double all = 0;
  for (const auto& [name, d] : seen->tensors) all += name == "loss" ? 0 : measure(d) * measure(d);
  const double least = kLeastShare * std::sqrt(all);
  // An update magnifies what gradients differ by, and then says little of the strategy.
  const bool follows = weights && out.gradients.largest.value_or(0) > 0;
  SeenDifference& largest = weights ? out.updates : out.gradients;
  largest.largest = 0;
  // The tensor that is furthest beyond what is allowed.
  double worst = 1, worst_seen = 0, worst_allowed = 0;
  std::string breach;
  for (const auto& [name, d] : seen->tensors) {
    const double size = std::max(measure(d), least);
    const double relative = d.difference == 0 ? 0 : size > 0 ? d.difference / size : HUGE_VAL;
    if (name == "loss") {
      out.loss.largest = std::max(out.loss.largest.value_or(0), d.norm > 0 ? d.difference / d.norm : 0);
    } else if (relative > *largest.largest) {
      largest = {relative, name};
    }
    double allowed = 0;  // of the difference
    if (out.declared == Exactness::Rounding) {
      allowed = name == "loss" ? loss_floor_ * d.norm : weights ? kWeightFloor * d.norm : gradient_floor_ * size;
      if (follows) allowed = std::max(allowed, kFollowFloor * size);
      if (const auto found = control.find(name); found != control.end()) allowed = std::max(allowed, kBandSlack * found->second.difference);
    } else if (out.declared == Exactness::Approximate) {
      allowed = follows || !within ? HUGE_VAL : *within * size;
    }
    const double beyond = d.difference <= allowed && (out.declared != Exactness::Bits || d.alike) ? 0
                          : allowed > 0                                                           ? d.difference / allowed
                                                                                                  : HUGE_VAL;
    if (beyond < worst || (beyond == worst && !breach.empty())) continue;
    worst = beyond;
    worst_seen = relative;
    worst_allowed = size > 0 ? allowed / size : 0;
    breach = name;
  }
  if (!breach.empty()) {
    const std::string name = breach.starts_with("grad.") ? breach.substr(5) : breach;
    const std::string what =
        breach == "loss" ? "the loss of the first window" : (weights ? "the update of '" : "the gradient of '") + name.substr(0, 120) + "'";
    return note(false,
                what + printed(" differs by %.2g of its size", worst_seen) +
                    (out.declared == Exactness::Bits       ? std::string()
                     : out.declared == Exactness::Rounding ? printed(", rounding by %.2g at most", worst_allowed)
                                                           : printed(", %.2g is declared", worst_allowed)),
                out);
  }
  // What changes which parameters are trained has other gradients, and saves others.
  const bool whole = use.arm == Beside::Without || use.arm == Beside::Instead;
  return note(
      seen->alone.empty() || !whole || out.declared == Exactness::Approximate,
      "'" + seen->alone.substr(0, 120) + (weights ? "' is saved by one of the two only" : "' has a gradient in one of the two only"), out);
}

void Certifier::judge(const Measured& other, const Use& use, Certificate& out) const {
  const Wanted wanted = wanted_for(use.arm);
  bool holds = !wanted.start || judge_losses(other, use, out);
  if (wanted.gradients) holds = judge_tensors(other, "gradients", use, out) && holds;
  if (wanted.updates) {
    holds = judge_losses(other, use, out) && holds;
    holds = judge_tensors(other, "weights", use, out) && holds;
  }
  out.verdict = holds ? Certificate::Verdict::Holds : Certificate::Verdict::Breach;
}

Status Certifier::hold(size_t use) {
  Use& of = uses_[use];
  Certificate& out = out_.strategies[use];
  if (of.arm == Beside::None) return ok();
  const int64_t before = done_;
  const Wanted wanted = wanted_for(of.arm);
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
  judge(*other, of, out);
  remove(*other);
  return ok();
}

/// The recipe under the ops' references: what they find names an instruction, and whose it is.
Status Certifier::refer() {
  const auto run = [&](bool small) -> Status {
    const auto s = TRY(study_of(
        [&](Recipe& recipe) {
          if (!small) return;
          if (recipe.batch) recipe.batch = std::min(*recipe.batch, kReferenceRows);
          if (recipe.length) recipe.length = std::min(*recipe.length, kReferenceLength);
        },
        Purpose::Train));
    out_.reference = {};
    SessionOptions options;
    options.reference = &out_.reference;
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
    size_t at = 0;
    while (at < uses_.size() && note.find(" of " + uses_[at].label) == std::string::npos) ++at;
    out_.reference_note = "the run under the ops' references ended early";
    if (ran.error().exit != Exit::Plugin) out_.reference_note += ": " + note;
    else if (at == uses_.size()) out_.fault = note;
    else {
      Certificate& of = out_.strategies[at];
      of.verdict = Certificate::Verdict::Breach;
      note_of(of) += "its op is not what its reference computes: " + note;
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
  if (std::ranges::any_of(whole_study_->program.tensors, [](const auto& t) { return t.dtype == GALLEY_BF16 || t.dtype == GALLEY_F16; })) {
    loss_floor_ = kLossFloor16;
    gradient_floor_ = kGradientFloor16;
  }
  if (uses_.empty()) return recipe_error(recipe_.string() + ": the recipe uses no strategy, and nothing can be held");
  using References = CertifyOptions::References;
  const bool references = options_.references == References::Yes ||
                          (options_.references == References::Small && whole_study_->program.parameters <= kReferenceParameters);
  Wanted wanted;
  bool band = false;
  int64_t runs = 0;
  for (const Use& use : uses_) {
    const Wanted one = wanted_for(use.arm);
    wanted = {wanted.start || one.start, wanted.gradients || one.gradients, wanted.updates || one.updates, true};
    band = band || (one.gradients && use.loaded->spec().exactness == Exactness::Rounding);
    runs += one.runs();
  }
  const Wanted of_control = {false, wanted.gradients, wanted.updates, false};
  all_ = runs + wanted.runs() + (band ? of_control.runs() : 0) + int64_t{references};
  out_.steps = std::min(kCertifySteps, whole_study_->recipe.steps);
  whole_ = TRY(measure("whole", {}, wanted, false));
  if (band) {
    control_ = TRY(measure(
        "control", [](Recipe& recipe) { recipe.control = true; }, of_control, false));
    if (wanted.gradients) control_gradients_ = TRY(distances_of(control_->folder / "gradients", whole_.folder / "gradients"));
    if (wanted.updates) control_weights_ = TRY(distances_of(control_->folder / "weights", whole_.folder / "weights"));
    remove(*control_);
  }
  for (size_t i = 0; i < uses_.size(); ++i) TRY_STATUS(hold(i));
  remove(whole_);
  if (references) {
    TRY_STATUS(refer());
  } else {
    for (Certificate& c : out_.strategies)
      if (c.against == "references")
        note_of(c) +=
            options_.references == References::No ? "left out: --no-references" : "left out for a model of this size: --references";
  }
  return std::move(out_);
}

}  // namespace

Result<Certified> certify(const fs::path& recipe, const CertifyOptions& options) { return Certifier(recipe, options).run(); }

}  // namespace galley
