// Parses the command line: commands, their options and their help come from one table.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
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

/// A parsed command line.
struct CommandLine {
  std::vector<std::string> positional;
  std::map<std::string, std::vector<std::string>> flags;
  std::string typed;  ///< all of it, as it may be typed again
  bool has(const std::string& flag) const { return flags.contains(flag); }
  /// Returns the last value given, or `otherwise`.
  std::string get(const std::string& flag, const std::string& otherwise = "") const;
  /// Returns the same as an integer of at least `least`.
  Result<int64_t> integer(const std::string& flag, int64_t otherwise, int64_t least) const;
  /// Returns the words of a list with commas between, as they are, empty ones too; nothing if the flag is not given.
  std::vector<std::string> list(const std::string& flag) const;
  /// Returns what was given of these flags, as words of another command line.
  std::vector<std::string> words_of(std::initializer_list<const char*> names) const;
  /// Returns the value as a number in [least, most].
  Result<double> number(const std::string& flag, double otherwise, double least, double most) const;
};

struct CommandSpec {
  std::string name;
  std::string positional;  ///< "RECIPE", "[NAME]", "RECIPE…" for one or more, "" for none
  std::string summary;     ///< one line
  std::string details;     ///< paragraphs and examples for --help
  std::vector<FlagSpec> flags;
  std::function<Status(const CommandLine&)> run;
  bool prints = true;  ///< its result is what it prints; false: files, of which it tells
  bool joins = false;  ///< several processes that a launcher has started run it together; false: only one may be started
};

/// Parses a command's words. An error (exit code Recipe) suggests the nearest known flag, or names the missing value or argument.
Result<CommandLine> parse_command_line(const CommandSpec& command, const std::vector<std::string>& words);
std::string command_help(const CommandSpec& command);
std::string program_help(const std::vector<CommandSpec>& commands);

std::vector<CommandSpec> all_commands();

/// Says whether the process was started with a standard output.
enum class Stdout : uint8_t { Open, Closed };

/// Runs the program. Prints an error to stderr: one line of cause, then a hint. Returns the process's exit code. [main-thread]
int run_program(const std::vector<std::string>& words, Stdout out = Stdout::Open);

}  // namespace galley
