// What `galley check` prints and writes.
#pragma once

#include <string>
#include <vector>

#include "host/tools/check/findings.hpp"

namespace galley {

/// "ok     op reglu: shape rule; gradient of a, b": a line for a test, and lines for each finding; findings in `red` … `plain`. `again`: the
/// command that runs the test once more.
std::string test_text(const TestResult& test, const std::string& again, const char* red = "", const char* plain = "");
/// What was not looked at, and the sum of it all.
std::string summary_text(const std::vector<TestResult>& tests, const char* red = "", const char* plain = "");
std::string check_json(const std::string& plugin, const std::string& folder, const std::vector<TestResult>& tests);
int64_t findings_of(const std::vector<TestResult>& tests);

}  // namespace galley
