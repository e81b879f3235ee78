// Runs the tests of a plugin, each in a process of its own, two at a time: what a plugin does to its process is then known by the test that
// it did it in, and harms no other.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "host/tools/check/findings.hpp"

namespace galley {

struct CheckRun {
  std::vector<std::string> command;           ///< this program, "check", the folder, and options that all tests have
  std::vector<std::string> environment = {};  ///< NAME=VALUE, beside what this process has
  std::filesystem::path scratch;              ///< a folder for all of them; there, and empty
  size_t at_once = 2;
  double seconds = 60;  ///< that all tests may take, as far as they can choose
  double most = 60;     ///< that one may take
  std::function<bool()> stop = [] { return false; };
  std::function<void(const TestResult&)> after = {};  ///< told of each test once it is over
};

/// What a process's output says last that says something: what a sanitizer reports, the program's last words, or the last line.
std::string last_words(const std::string& output);

/// Runs all tests, or those of a list. The results are in the order of the tests. An error is this machine's.
Result<std::vector<TestResult>> run_checks(const CheckRun& run);

}  // namespace galley
