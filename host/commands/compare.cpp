#include "host/commands/compare.hpp"

#include <unistd.h>

#include <cstdio>

#include "host/base/new_file.hpp"
#include "host/commands/run_commands.hpp"
#include "host/commands/stop_signals.hpp"
#include "host/compare/compare_report.hpp"
#include "host/compare/turns.hpp"
#include "host/session/run_lock.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// "1,2,3" or "1 2 3".
Result<std::vector<int64_t>> seeds_of(const CommandLine& a) {
  std::vector<int64_t> out;
  if (!a.has("--seeds")) return out;
  const std::string text = a.get("--seeds");
  const Error wrong = recipe_error("--seeds '" + text + "': expected different whole numbers, such as 1,2,3,4,5");
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    char* stop = nullptr;
    const std::string word = text.substr(at, end - at);
    const long long seed = std::strtoll(word.c_str(), &stop, 10);
    if (word.empty() || *stop || seed < 0 || std::find(out.begin(), out.end(), seed) != out.end()) return wrong;
    out.push_back(seed);
    at = end + 1;
  }
  return out;
}

/// Of `names`, what was given, as words of a command line of its own.
std::vector<std::string> words_of(const CommandLine& a, std::initializer_list<const char*> names) {
  std::vector<std::string> out;
  for (const char* name : names)
    if (const auto given = a.flags.find(name); given != a.flags.end())
      for (const std::string& value : given->second) {
        out.emplace_back(name);
        if (std::string(name) != "--confine") out.push_back(value);
      }
  return out;
}

/// One line that keeps still on a terminal, lines elsewhere.
class Shown {
 public:
  void begins(int64_t done, int64_t all, const Arm& arm, int64_t seed) {
    const double now = seconds();
    if (first_ < 0) first_ = now, from_ = done;
    const int64_t of_this = done - from_;
    const double left = of_this > 0 ? (now - first_) / static_cast<double>(of_this) * static_cast<double>(all - done) : 0;
    char text[200];
    std::snprintf(text, sizeof text, "turn %lld of %lld: %s, seed %lld%s", static_cast<long long>(done + 1), static_cast<long long>(all),
                  arm.name.substr(0, 40).c_str(), static_cast<long long>(seed),
                  of_this > 0 ? ("  ETA " + std::to_string(static_cast<long long>(left + 0.5)) + " s").c_str() : "");
    if (terminal_) std::printf("\r\033[K%s", text);
    else if (now - last_ >= 5 || done == from_) std::printf("%s\n", text), last_ = now;
    std::fflush(stdout);
  }
  void end() const {
    if (terminal_) std::printf("\r\033[K");
  }

 private:
  static double seconds() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  bool terminal_ = isatty(1) == 1;
  double first_ = -1, last_ = -1e9;
  int64_t from_ = 0;
};

/// The baseline with other rounding errors, as an arm of its own; its name cannot be a variant's.
Result<Arm> control_of(const Comparison& comparison, const StudyOptions& options) {
  Arm out = comparison.arms.front();
  out.name += ".control";
  out.sets["control"] = "true";
  StudyOptions of_control = options;
  of_control.sets = out.sets;
  of_control.sets["seed"] = std::to_string(comparison.seeds.front());
  out.study = TRY(study(out.recipe, of_control));
  return out;
}

Result<std::vector<RunResult>> results_of(const fs::path& out, const Arm& arm, const std::vector<int64_t>& seeds) {
  std::vector<RunResult> results;
  for (const int64_t seed : seeds) results.push_back(TRY(read_result(run_of(out, arm, seed))));
  return results;
}

}  // namespace

Result<bool> is_comparison(const std::string& recipe, const StudyOptions& options) {
  return TRY(read_compare(recipe, recipe_options(options))).has_value();
}

Status print_plans(const std::string& recipe, const StudyOptions& options) {
  const Comparison comparison = TRY(read_comparison({recipe}, {options, {}, 0}, Refused::Kept));
  std::fputs(compare_plans(comparison).c_str(), stdout);
  std::printf("galley plan %s --set variant=%s shows all of one\n", recipe.c_str(), comparison.arms.front().name.c_str());
  return ok();
}

Status command_compare(const CommandLine& a) {
  CompareOptions options;
  options.study = TRY(study_options(a));
  options.seeds = TRY(seeds_of(a));
  options.turns = TRY(a.integer("--turns", 0, 1));
  Comparison comparison = TRY(read_comparison(a.positional, options));
  std::vector<Expectation> expectations;
  if (const auto given = a.flags.find("--expect"); given != a.flags.end())
    for (const std::string& text : given->second) expectations.push_back(TRY(parse_expectation(text, comparison)));

  const fs::path out = a.get("--out");
  std::error_code error;
  fs::create_directories(out / "arms", error);
  if (error) return recipe_error("--out " + out.string() + ": cannot be created: " + error.message());
  const RunLock lock = TRY(RunLock::take(out));
  std::fputs(compare_plans(comparison).c_str(), stdout);
  std::fflush(stdout);

  const Arm control = TRY(control_of(comparison, options.study));
  Comparison all = comparison;
  all.arms.push_back(control);
  StopSignals signals;
  signals.install();
  Shown shown;
  TurnOptions turns;
  turns.program = fs::read_symlink("/proc/self/exe", error);
  if (error) return run_error("/proc/self/exe: " + error.message());
  turns.train_words = words_of(a, {"--plugin-path", "--device", "--target", "--memory", "--confine"});
  turns.resume_words = words_of(a, {"--plugin-path"});
  turns.stop = StopSignals::asked;
  turns.begins = [&](int64_t done, int64_t of, const Arm& arm, int64_t seed) { shown.begins(done, of, arm, seed); };
  const Status ran = run_turns(all, out, turns);
  shown.end();
  TRY_STATUS(ran);

  std::vector<std::vector<RunResult>> results;
  for (const Arm& arm : comparison.arms) results.push_back(TRY(results_of(out, arm, comparison.seeds)));
  const std::vector<ArmVerdict> verdicts = TRY(judge(comparison, results, TRY(results_of(out, control, comparison.seeds))));
  TRY_STATUS(write_atomic(out / "compare.json", compare_json(comparison, results, verdicts)));
  const bool terminal = isatty(1) == 1;
  std::printf("\n%s", compare_table(comparison, verdicts, terminal ? "\x1b[1;31m" : "", terminal ? "\x1b[0m" : "").c_str());
  std::printf("done: %s\n", (out / "compare.json").c_str());
  for (const Expectation& e : expectations)
    if (const std::string seen = unmet(e, comparison, verdicts); !seen.empty())
      return run_error("--expect '" + e.text + "' does not hold: " + seen);
  return ok();
}

}  // namespace galley
