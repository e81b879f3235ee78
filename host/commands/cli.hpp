// The command line: which commands there are, what they take, and their help, from one table.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

struct FlagSpec {
  std::string name;   ///< "--out"
  std::string value;  ///< "DIR"; empty: a switch
  std::string help;
  bool repeats = false;
  bool required = false;
};

/// A command line, taken apart.
struct CommandLine {
  std::vector<std::string> positional;
  std::map<std::string, std::vector<std::string>> flags;
  bool has(const std::string& flag) const { return flags.contains(flag); }
  /// The last value given, or `otherwise`.
  std::string get(const std::string& flag, const std::string& otherwise = "") const;
  /// The same as an integer of at least `least`.
  Result<int64_t> integer(const std::string& flag, int64_t otherwise, int64_t least) const;
  /// As a number in [least, most].
  Result<double> number(const std::string& flag, double otherwise, double least, double most) const;
};

struct CommandSpec {
  std::string name;
  std::string positional;  ///< "RECIPE", "[NAME]", "" for none
  std::string summary;     ///< one line
  std::string details;     ///< paragraphs and examples for --help
  std::vector<FlagSpec> flags;
  std::function<Status(const CommandLine&)> run;
};

/// Unknown flags get the nearest known one; missing values and positionals are named. Exit code Recipe.
Result<CommandLine> parse_command_line(const CommandSpec& command, const std::vector<std::string>& words);
std::string command_help(const CommandSpec& command);
std::string program_help(const std::vector<CommandSpec>& commands);

std::vector<CommandSpec> all_commands();

/// Runs the program: prints help, one line of cause and a hint on stderr; the process's exit code. [main-thread]
int run_program(const std::vector<std::string>& words);

}  // namespace galley
