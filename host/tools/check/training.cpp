// Short runs with a strategy, each a process of its own: as they are, resumed, under the modes that watch a run, beside other strategies, as
// the manifest declares, and what is saved of them.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/process.hpp"
#include "host/tools/check/processes.hpp"
#include "host/tools/check/recipes.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/check/sanitizers.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace fs = std::filesystem;
namespace {

constexpr double kMostSeconds = 60;
/// What a small run's process takes beside its plan: the program, its libraries, threads.
constexpr int64_t kProcess = int64_t{256} << 20;

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class TrainingCheck {
 public:
  TrainingCheck(const CheckContext& context, const StrategySpec& spec, TestLog& log) : context_(context), spec_(spec), log_(log) {}

  Status run() {
    const FoundRecipe found = TRY(find_recipe(context_, spec_.name));
    if (!found.recipe)
      return log_.unchecked("no small recipe with it can be planned" + (found.refused ? ": " + found.refused->cause : "")), ok();
    recipe_ = *found.recipe;
    recipe_.entries = "save = { every = 2, keep = 4 },";
    path_ = TRY(write_recipe(context_, "training", recipe_.text(4)));
    const std::set<std::string> before = beside();
    if (!TRY(trains("whole", {}, ""))) return ok();
    for (const std::string& name : beside())
      if (!before.contains(name)) find("four steps", "the run has written '" + name + "' beside its folder", rules::kBelow);
    check_memory();
    TRY_STATUS(check_resume());
    check_files();
    TRY_STATUS(check_modes());
    TRY_STATUS(check_certify());
    TRY_STATUS(check_saved());
    TRY_STATUS(check_again());
    TRY_STATUS(check_merge());
    TRY_STATUS(check_beside());
    return ok();
  }

 private:
  void find(const std::string& where, const std::string& sentence, const char* rule) { log_.find(where, sentence, rule); }

  struct Ran {
    int code = 0;
    std::string said;
    bool ended = true;
    /// Its error: the cause alone.
    std::string cause() const { return last_words(said); }
    const char* rule() const { return sanitizer_report(said).empty() ? rules::broken_by(cause()) : rules::kSanitized; }
  };
  Result<Ran> galley(std::vector<std::string> words) {
    words.insert(words.begin(), fs::read_symlink("/proc/self/exe").string());
    for (const fs::path& path : context_.study.plugin_path) words.insert(words.end(), {"--plugin-path", path.string()});
    const fs::path log = context_.scratch / ("log-" + std::to_string(++runs_));
    Process process = TRY(Process::start(words, log));
    Ran out;
    const std::optional<int> code = process.wait_for(kMostSeconds);
    out.ended = code.has_value();
    out.code = code.value_or(-1);
    out.said = bytes_of(log);
    return out;
  }
  std::string at(const std::string& name) const { return (context_.scratch / name).string(); }

  /// Whether a command succeeds; else what it says is a finding.
  Result<bool> succeeds(const std::vector<std::string>& words, const std::string& what, const char* rule = nullptr) {
    const Ran ran = TRY(galley(words));
    if (!ran.ended) return find(what, printed("it is not done after %.0f s", kMostSeconds), rules::kSeconds), false;
    if (ran.code == 0) return true;
    if (ran.code > 128) find(what, printed("it is ended by signal %d: ", ran.code - 128) + ran.cause(), ran.rule());
    else find(what, ran.cause(), rule ? rule : ran.rule());
    return false;
  }
  Result<bool> trains(const std::string& out, std::vector<std::string> more, const std::string& what) {
    std::vector<std::string> words = {"train", path_.string(), "--out", at(out)};
    words.insert(words.end(), more.begin(), more.end());
    const bool trained = TRY(succeeds(words, what.empty() ? "four steps" : what));
    if (trained) log_.held(what.empty() ? "four steps, as planned" : what);
    return trained;
  }

  void check_memory() {
    if (!sanitizers_here().empty()) return;  // which have memory of their own
    const Result<Value> usage = read_json(at("whole") + "/usage.json");
    const auto* process = usage ? usage->field<Table>("process") : nullptr;
    if (!process) return;
    const Value of{Table(*process)};
    const auto *planned = of.field<int64_t>("planned"), *peak = of.field<int64_t>("resident_peak");
    if (planned && peak && *peak > *planned + kProcess)
      find("memory",
           printed("the process has had %.0f MiB, of which %.0f MiB are planned", static_cast<double>(*peak) / (1 << 20),
                   static_cast<double>(*planned) / (1 << 20)),
           rules::kNoMemory);
  }

  /// What lies in the test's folder beside the run.
  std::set<std::string> beside() const {
    std::set<std::string> out;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(context_.scratch, error))
      if (const std::string name = entry.path().filename(); name != "whole" && !name.starts_with("log-")) out.insert(name);
    return out;
  }

  /// Interrupted after two steps and resumed, a run has the bytes of one that was not.
  Status check_resume() {
    if (!TRY(trains("parted", {"--until", "2"}, "two steps"))) return ok();
    if (!TRY(succeeds({"resume", at("parted")}, "resumed after two steps"))) return ok();
    // A process that was killed after step 4, before it was saved, has left what it told of it.
    std::error_code ignored;
    fs::copy(at("whole"), at("killed"), fs::copy_options::recursive, ignored);
    for (const char* gone : {"state/step-00000004", "model", "adapter", "result.toml"})
      fs::remove_all(fs::path(at("killed")) / gone, ignored);
    if (!TRY(succeeds({"resume", at("killed")}, "resumed from step 2 of a run that was killed later"))) return ok();
    std::string differs;
    for (const char* part : {"model", "adapter", "state"}) {
      std::error_code error;
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(at("whole") + "/" + part, error)) {
        if (!entry.is_regular_file() || entry.path().extension() != ".safetensors") continue;
        const fs::path name = fs::relative(entry.path(), at("whole"));
        if (bytes_of(entry.path()) != bytes_of(fs::path(at("parted")) / name)) differs += (differs.empty() ? "" : ", ") + name.string();
      }
    }
    if (!differs.empty()) find("resumed after two steps", "other bytes than of a run that was not interrupted: " + differs, rules::kStates);
    else log_.held("resumed to the bit");
    return ok();
  }

  /// Files that a listener has written: a run that was killed after its last state, and resumed, has as many lines of them.
  void check_files() {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(at("killed"), error)) {
      const std::string name = entry.path().filename();
      if (!entry.is_regular_file() || name.starts_with("events.out.") || name.ends_with(".json") || name.ends_with(".toml")) continue;
      const std::string whole = bytes_of(fs::path(at("whole")) / name), killed = bytes_of(entry.path());
      const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
      if (lines(whole) != lines(killed))
        find("file '" + name + "'",
             printed("it has %ld lines after a run that was resumed from an earlier state, and %ld after one that was not interrupted",
                     static_cast<long>(lines(killed)), static_cast<long>(lines(whole))),
             rules::kLaterRows);
    }
  }

  Status check_modes() {
    for (const char* mode : {"--reference", "--poison"}) TRY(trains(std::string("mode") + mode, {mode}, mode));
    return ok();
  }

  /// What the manifest declares.
  Status check_certify() {
    const Ran ran = TRY(galley({"certify", path_.string(), "--json", at("certified.json")}));
    if (ran.code == 0) return log_.held("certified"), ok();
    if (ran.code == static_cast<int>(Exit::Recipe)) return log_.unchecked("certify: " + ran.cause()), ok();
    const bool promise = ran.said.find("format '") != std::string::npos && ran.said.find("promise") != std::string::npos;
    find("certify", ran.ended ? ran.cause() : "it is not done after a minute", promise ? rules::kPromise : against_rule());
    return ok();
  }
  const char* against_rule() const {
    switch (spec_.against.arm) {
      case Against::Arm::Without: return rules::kWithout;
      case Against::Arm::Gradients: return rules::kGradientsOnly;
      case Against::Arm::Start: return rules::kStart;
      case Against::Arm::Instead: return rules::kInstead;
      default: return rules::kKernel;
    }
  }

  /// What was trained is saved: in the model, in an adapter, or in a file of the plugin's own.
  Status check_saved() {
    const std::unique_ptr<Study> planned = TRY(study(path_, context_.study));
    const Program& program = planned->program;
    std::set<TensorId> read;
    bool model = false;
    for (const Instruction& code : program.segments[static_cast<size_t>(SegmentKind::Export)].code) {
      for (const Operand& o : code.inputs) read.insert(o.tensor);
      if (const auto* write = std::get_if<Write>(&code.what)) model = model || write->file.starts_with("model/");
    }
    std::string lost;
    for (const Trained& t : program.trained)
      if (!model && !read.contains(t.parameter)) lost += (lost.empty() ? "'" : ", '") + t.name + "'";
    if (!lost.empty()) find("what is saved at the end", "nothing reads what was trained: " + lost.substr(0, 200), rules::kSaved);
    else if (!program.trained.empty()) log_.held("what is trained is saved");
    return ok();
  }

  /// A recipe with the strategy reads the model that a run with it has saved.
  Status check_again() {
    std::error_code error;
    if (!fs::exists(at("whole") + "/model/config.json", error)) return ok();
    SmallRecipe again = recipe_;
    again.model = "model { path = \"whole/model\" }";
    const fs::path path = TRY(write_recipe(context_, "again", again.text(2)));
    const Ran ran = TRY(galley({"plan", path.string()}));
    if (ran.code == 0) log_.held("its model is read again");
    else find("the model that it has saved, in a run with it", ran.ended ? ran.cause() : "it is not done after a minute", rules::kConfig);
    return ok();
  }

  /// Merged into the model, it computes what it computed beside it.
  Status check_merge() {
    if (recipe_.data.find("data.text") == std::string::npos) return ok();
    const Ran before = TRY(galley({"eval", at("whole"), "--json"}));
    const Ran merged = TRY(galley({"export", at("whole"), "--merge", "--out", at("merged")}));
    if (before.code != 0 || merged.code != 0) {
      if (merged.code == static_cast<int>(Exit::Plugin) || merged.code > 128) find("export --merge", merged.cause(), rules::kMerge);
      return ok();
    }
    const Around around = TRY(read_around(context_));
    const SmallRecipe alone = {"model { path = \"merged\" }", recipe_.data, {around.optimizer}};
    const fs::path path = TRY(write_recipe(context_, "merged-alone", alone.text(4)));
    const Ran after = TRY(galley({"eval", path.string(), "--json"}));
    if (after.code != 0) return log_.unchecked("the merged model: " + after.cause()), ok();
    const double a = loss_of(before.said), b = loss_of(after.said);
    if (!(std::fabs(a - b) <= 1e-3))
      find("export --merge", printed("the loss is %.6f before, and %.6f of the merged model", a, b), rules::kMerge);
    else log_.held("merged, it computes the same");
    return ok();
  }
  static double loss_of(const std::string& json) {
    const size_t begin = json.find('{'), end = json.rfind('}');
    if (begin == std::string::npos || end == std::string::npos) return NAN;
    const Result<Value> said = parse_json(std::string_view(json).substr(begin, end - begin + 1), "eval");
    const auto* loss = said ? said->field<double>("validation_loss") : nullptr;
    return loss ? *loss : NAN;
  }

  /// Beside other strategies it trains, or is refused by name when it is planned.
  Status check_beside() {
    std::string trained, refused;
    const Around around = TRY(read_around(context_));
    for (const std::string& use : around.beside) {
      const std::string begin = use.substr(0, use.find('"', use.find('"') + 1) + 1),
                        name = begin.substr(begin.find('"') + 1, begin.size() - begin.find('"') - 2);
      if (std::ranges::any_of(recipe_.uses, [&](const std::string& u) { return u.starts_with(begin); })) continue;
      SmallRecipe more = recipe_;
      more.uses.push_back(use);
      more.entries = "save = { final = false },";
      const fs::path path = TRY(write_recipe(context_, "beside-" + name, more.text(2)));
      const Ran ran = TRY(galley({"train", path.string(), "--out", at("with-" + name), "--reference"}));
      const std::string what = "beside " + name;
      if (!ran.ended) find(what, printed("it is not done after %.0f s", kMostSeconds), rules::kSeconds);
      else if (ran.code == static_cast<int>(Exit::Recipe)) refused += (refused.empty() ? "" : ", ") + name;
      else if (ran.code != 0) find(what, ran.cause(), ran.rule());
      else trained += (trained.empty() ? "" : ", ") + name;
    }
    if (!trained.empty()) log_.held("beside " + trained);
    if (!refused.empty()) log_.held("refused by name beside " + refused);
    return ok();
  }

  const CheckContext& context_;
  const StrategySpec& spec_;
  TestLog& log_;
  SmallRecipe recipe_;
  fs::path path_;
  int runs_ = 0;
};

}  // namespace

Status check_training(const CheckContext& context, const StrategySpec& strategy, TestLog& log) {
  return TrainingCheck(context, strategy, log).run();
}

}  // namespace galley
