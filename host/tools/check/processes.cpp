#include "host/tools/check/processes.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <list>

#include "host/base/process.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/check/sanitizers.hpp"
#include "host/tools/check/tests.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

/// A test that runs.
struct Running {
  size_t index;
  std::string name;
  fs::path lines, log;
  Process process;
  Clock::time_point begun;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begun).count(); }
};

std::string output_of(const Running& test) {
  const Result<std::string> text = read_text(test.log, UINT64_C(1) << 26);
  return text ? *text : "";
}

/// What is wrong with a test that has not come to its end.
Finding not_done(const Running& test, const Finding& doing, std::optional<int> code, double limit) {
  const std::string output = output_of(test), said = last_words(output);
  if (!sanitizer_report(output).empty()) return {doing.where, said, rules::kSanitized};
  if (!code) return {"", printed("it is not done after %.0f s: ", limit) + said, rules::kSeconds};
  if (*code > 128 && !doing.rule.empty()) return {doing.where, said, doing.rule};
  if (*code > 128) return {"", printed("the process is ended by signal %d: ", *code - 128) + said, rules::broken_by(said)};
  return {"", printed("the process ends with exit code %d in the middle of the test: ", *code) + said, rules::kStatus};
}

Result<TestResult> result_of(Running& test, std::optional<int> code, double limit) {
  TestResult out = TRY(read_lines(test.lines, test.name));
  out.seconds = test.seconds();
  if (out.done && (code == 0 || !out.findings.empty())) return out;
  // What is neither the plugin's nor a test's fault is said, and not a finding.
  const auto refused = [&](Exit exit) { return code == static_cast<int>(exit); };
  if (!out.done && (refused(Exit::Recipe) || refused(Exit::Failed) || refused(Exit::DoesNotFit))) {
    out.unchecked.push_back("the test could not be run: " + last_words(output_of(test)));
    return out;
  }
  if (code == static_cast<int>(Exit::Interrupted)) return Error{Exit::Interrupted, "interrupted in test '" + test.name + "'", ""};
  out.findings.push_back(not_done(test, out.doing, code, limit));
  return out;
}

}  // namespace

std::string last_words(const std::string& output) {
  if (std::string report = sanitizer_report(output); !report.empty()) return report;
  std::string_view said = output;
  while (!said.empty() && (said.back() == '\n' || said.back() == ' ')) said.remove_suffix(1);
  const size_t at = said.rfind("galley: ");
  if (at != std::string_view::npos && (at == 0 || said[at - 1] == '\n')) said = said.substr(at + 8, said.find('\n', at) - at - 8);
  else if (const size_t line = said.rfind('\n'); line != std::string_view::npos) said = said.substr(line + 1);
  return said.empty() ? "it said nothing" : std::string(said.substr(0, 400));
}

Result<std::vector<TestResult>> run_checks(const CheckRun& run) {
  std::vector<std::string> tests = {kLibraryTest};
  std::vector<std::optional<TestResult>> results(1);
  std::list<Running> running;
  size_t next = 0, done = 0;
  while (done < tests.size()) {
    while (running.size() < run.at_once && next < tests.size() && (next == 0 || results.front())) {
      const std::string number = std::to_string(next);
      const fs::path lines = run.scratch / ("lines-" + number), log = run.scratch / ("log-" + number),
                     own = run.scratch / ("test-" + number);
      std::error_code error;
      fs::create_directory(own, error);
      std::vector<std::string> words = run.command;
      const double share = static_cast<double>(run.at_once) * run.seconds / static_cast<double>(tests.size() + 1);
      words.insert(words.end(), {"--only", tests[next], "--lines", lines.string(), "--seconds", printed("%.2f", share)});
      (void)TRY(File::open_append(lines));
      std::vector<std::string> environment = run.environment;
      environment.push_back("TMPDIR=" + own.string());
      running.push_back({next, tests[next], lines, log, TRY(Process::start(words, log, environment)), Clock::now()});
      ++next;
    }
    if (run.stop()) return Error{Exit::Interrupted, "interrupted", ""};
    for (auto test = running.begin(); test != running.end();) {
      std::optional<int> code = test->process.wait_for(.01);
      const bool late = !code && test->seconds() > run.most;
      if (!code && !late) {
        ++test;
        continue;
      }
      if (late) {  // its last words say what it is in
        test->process.send(SIGABRT);
        (void)test->process.wait_for(2);
      }
      TestResult result = TRY(result_of(*test, late ? std::nullopt : code, run.most));
      for (const std::string& name : result.tests) {
        tests.push_back(name);
        results.emplace_back();
      }
      ++done;
      if (run.after) run.after(result);
      results[test->index] = std::move(result);
      test = running.erase(test);
    }
  }
  std::vector<TestResult> out;
  for (auto& result : results) out.push_back(std::move(*result));
  return out;
}

}  // namespace galley
