#include "host/tools/check/report.hpp"

#include <cmath>

#include "host/base/json.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

std::string counted(int64_t n, const char* one) { return std::to_string(n) + " " + one + (n == 1 ? "" : "s"); }

}  // namespace

int64_t findings_of(const std::vector<TestResult>& tests) {
  int64_t out = 0;
  for (const TestResult& test : tests) out += static_cast<int64_t>(test.findings.size());
  return out;
}

std::string test_text(const TestResult& test, const std::string& again, const char* red, const char* plain) {
  std::string held;
  for (const std::string& what : test.held) held += (held.empty() ? "" : "; ") + what;
  const bool wrong = !test.findings.empty();
  std::string out = (wrong ? std::string(red) + "WRONG" + plain : std::string(held.empty() ? "-    " : "ok   ")) + "  " + test.name +
                    printed(" (%.1f s): ", test.seconds) + (held.empty() ? "nothing to hold" : held) + "\n";
  for (const Finding& f : test.findings)
    out += "       " + (f.where.empty() ? "" : f.where + ": ") + f.sentence + "\n       breaks " + f.rule + "\n";
  return wrong && !again.empty() ? out + "       once more: " + again + "\n" : out;
}

std::string summary_text(const std::vector<TestResult>& tests, const char* red, const char* plain) {
  std::string out;
  int64_t unchecked = 0, no_time = 0;
  for (const TestResult& test : tests)
    for (const std::string& what : test.unchecked) {
      out += "not checked: " + test.name + ": " + what + "\n";
      ++unchecked;
      no_time += what.ends_with(kNoTime);
    }
  if (no_time > 0) out += "for want of time, " + std::to_string(no_time) + " of these: a larger --seconds looks at them\n";
  const int64_t findings = findings_of(tests);
  return out + counted(static_cast<int64_t>(tests.size()), "test") + ", " + std::to_string(unchecked) +
         " not checked: " + (findings ? red + counted(findings, "finding") + plain : std::string("nothing found")) + "\n";
}

std::string check_json(const std::string& plugin, const std::string& folder, const std::vector<TestResult>& tests) {
  const auto texts = [](const std::vector<std::string>& list) {
    List out;
    for (const std::string& text : list) out.push_back(Value(text));
    return Value(std::move(out));
  };
  List all;
  int64_t unchecked = 0;
  for (const TestResult& test : tests) {
    List findings;
    for (const Finding& f : test.findings)
      findings.push_back(Value(Table{{"where", Value(f.where)},
                                     {"size", std::isfinite(f.size) ? Value(f.size) : Value()},
                                     {"sentence", Value(f.sentence)},
                                     {"rule", Value(f.rule)}}));
    unchecked += static_cast<int64_t>(test.unchecked.size());
    all.push_back(Value(Table{{"test", Value(test.name)},
                              {"held", texts(test.held)},
                              {"unchecked", texts(test.unchecked)},
                              {"seconds", Value(test.seconds)},
                              {"findings", Value(std::move(findings))}}));
  }
  return to_json(Value(Table{{"plugin", Value(plugin)},
                             {"folder", Value(folder)},
                             {"tests", Value(std::move(all))},
                             {"unchecked", Value(unchecked)},
                             {"findings", Value(findings_of(tests))}}),
                 2) +
         "\n";
}

}  // namespace galley
