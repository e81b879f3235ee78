// What `galley check` finds in a plugin: written down as it is found, a line of JSON each, so that what a test has found is known even where
// the plugin ends the process.
#pragma once

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/result.hpp"

namespace galley {

struct Finding {
  std::string where;       ///< "case 'small', input 1 ('weight')"; "": the test's subject as a whole
  std::string sentence;    ///< what was seen
  std::string rule;        ///< the sentence of the headers, or of the page for authors, that it breaks
  double size = INFINITY;  ///< of a difference: a share of what is right, or of a bound
};

/// With which all that was left out for want of time ends.
inline constexpr const char* kNoTime = ": there was no time (--seconds)";

/// What a test has held and found.
struct TestResult {
  std::string name;               ///< "op gelu"
  std::vector<std::string> held;  ///< "small: gradient of x"
  std::vector<Finding> findings;
  std::vector<std::string> unchecked;  ///< what was not looked at, and why
  std::vector<std::string> tests;      ///< of the first test: those that the plugin gives reason for
  bool done = false;                   ///< it has come to its end
  Finding doing = {};  ///< what it was at, and the rule that is broken if the process ends there; no rule: nothing of that kind
  double seconds = 0;
};

/// What a running test writes. [main-thread]
class TestLog {
 public:
  /// `lines`: null, or where each thing is written to as it comes. `folder`: of the test's own files, which are gone when somebody reads of them:
  /// findings have their names alone.
  TestLog(std::string test, File* lines, const std::filesystem::path& folder) : lines_(lines), folder_(folder.string() + "/") {
    result_.name = std::move(test);
  }
  void held(const std::string& what);
  void find(Finding finding);
  void find(const std::string& where, const std::string& sentence, const char* rule) { find({where, sentence, rule}); }
  void unchecked(const std::string& why);
  /// That this was left out for want of time.
  void no_time(const std::string& what) { unchecked(what + kNoTime); }
  void test(const std::string& name);
  /// What is done now, in which a plugin may end the process: it breaks `rule` then. Without arguments: that is over.
  void doing(const std::string& where = "", const char* rule = "");
  void done();
  const TestResult& result() const { return result_; }

 private:
  void write(const char* key, const std::string& json);
  std::string without_folder(std::string text) const;
  TestResult result_;
  File* lines_;
  std::string folder_;
};

/// Reads what a test's process has written, as far as it came.
Result<TestResult> read_lines(const std::filesystem::path& file, const std::string& test);

}  // namespace galley
