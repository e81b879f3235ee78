#include "host/commands/check.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "host/base/new_file.hpp"
#include "host/base/shell.hpp"
#include "host/commands/run_commands.hpp"
#include "host/commands/stop_signals.hpp"
#include "host/session/study.hpp"
#include "host/tools/check/processes.hpp"
#include "host/tools/check/report.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/check/sanitizers.hpp"
#include "host/tools/check/tests.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// A folder for the files of tests, which goes when this does.
class Scratch {
 public:
  static Result<Scratch> make() {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "galley-check-XXXXXX").string();
    if (error || !::mkdtemp(name.data()))
      return run_error("cannot make a folder for the tests' files in " + fs::path(name).parent_path().string());
    return Scratch(name);
  }
  Scratch(Scratch&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit Scratch(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

/// The first finding, as the program's last words.
Status outcome(const std::string& plugin, const std::vector<TestResult>& tests) {
  for (const TestResult& test : tests)
    if (!test.findings.empty()) {
      const Finding& f = test.findings.front();
      return plugin_error("plugin '" + plugin + "': " + test.name + (f.where.empty() ? "" : ", " + f.where) + ": " + f.sentence,
                          "it breaks " + f.rule);
    }
  return ok();
}

/// Runs one test in this process.
Status run_one(const CommandLine& a, const fs::path& folder, const std::string& name, const RedMarks& red) {
  const auto begun = std::chrono::steady_clock::now();
  // First of all, so that it hides one of its name that comes with the program, and none hides it.
  std::vector<fs::path> first = {folder};
  StudyOptions study = TRY(study_options(a));
  first.insert(first.end(), study.plugin_path.begin(), study.plugin_path.end());
  study.plugin_path = first;
  // The SDK's emulated GPU lies beside the program's plugins, where the SDK is installed.
  std::error_code error;
  const fs::path home = study.installation.plugins.parent_path();
  std::vector<fs::path> built_in = {study.installation.plugins};
  if (fs::exists(home / "emulated", error)) built_in.push_back(home / "emulated");
  const auto plugins = Plugins::scan(plugin_search_path(built_in, first), [](const std::string&) {});
  Plugin* plugin = nullptr;
  for (const auto& p : plugins->all())
    if (fs::canonical(p->manifest.folder(), error) == folder) plugin = p.get();
  if (!plugin) return plugin_error(folder.string() + ": the plugin cannot be used");
  std::optional<File> lines;
  if (a.has("--lines")) lines.emplace(TRY(File::open_append(a.get("--lines"))));
  const Scratch scratch = TRY(Scratch::make());
  TestLog log(name, lines ? &*lines : nullptr, scratch.path());
  const CheckContext context = {
      *plugins,      *plugin, static_cast<uint64_t>(TRY(a.integer("--seed", 1, 0))), study, TRY(a.number("--seconds", 20, .01, 1e6)),
      scratch.path()};
  const Status ran = run_check(context, name, log);
  if (!ran && ran.error().exit == Exit::Plugin) log.find({"", ran.error().cause, rules::broken_by(ran.error().cause)});
  else TRY_STATUS(ran);
  log.done();
  if (lines) return ok();  // for who started it
  TestResult result = log.result();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  print_lines(test_text(result, "", red.begin, red.end) + summary_text({result}, red.begin, red.end), red);
  return outcome(plugin->manifest.id, {result});
}

}  // namespace

Status command_check(const CommandLine& a) {
  std::error_code error;
  const fs::path folder = fs::canonical(a.positional[0], error);
  if (error || !fs::exists(folder / "plugin.toml", error))
    return recipe_error("galley check: " + a.positional[0] + " is no plugin's folder: there is no plugin.toml in it",
                        "give the folder in which plugin.toml and the library lie, after the plugin has been built");
  const Manifest manifest = TRY(read_manifest(folder / "plugin.toml"));
  const RedMarks red = red_marks();
  if (a.has("--only")) return run_one(a, folder, a.get("--only"), red);
  std::optional<NewFile> json;
  if (a.has("--json")) json.emplace(TRY(NewFile::named(a.get("--json"))));
  const Scratch scratch = TRY(Scratch::make());
  StopSignals signals;
  signals.install();
  CheckRun run;
  run.command = {fs::read_symlink("/proc/self/exe").string(), "check", folder.string()};
  const std::vector<std::string> more = a.words_of({"--seed", "--plugin-path"});
  run.command.insert(run.command.end(), more.begin(), more.end());
  run.environment = sanitizer_environment(folder);
  run.scratch = scratch.path();
  run.seconds = TRY(a.number("--seconds", run.seconds, 1, 1e6));
  run.stop = StopSignals::asked;
  const auto again = [&](const std::string& test) {
    std::string out = "galley check " + shell_word(a.positional[0]) + " --only " + shell_word(test);
    for (const std::string& word : more) out += " " + shell_word(word);
    return out;
  };
  run.after = [&](const TestResult& test) {
    print_lines(test_text(test, again(test.name), red.begin, red.end), red);
    std::fflush(stdout);
  };
  const std::vector<TestResult> tests = TRY(run_checks(run));
  print_lines(summary_text(tests, red.begin, red.end), red);
  if (json) {
    TRY_STATUS(json->file().write(check_json(manifest.id, folder.string(), tests)));
    TRY_STATUS(json->finish());
  }
  return outcome(manifest.id, tests);
}

}  // namespace galley
