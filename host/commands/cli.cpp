#include "host/commands/cli.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "galley/abi.h"
#include "host/base/confinement.hpp"
#include "host/base/json.hpp"
#include "host/base/log.hpp"
#include "host/base/nearest.hpp"
#include "host/base/printable.hpp"
#include "host/base/shell.hpp"
#include "host/commands/processes.hpp"
#include "host/session/study.hpp"
#include "host/tools/report/columns.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

std::string pad(std::string text, size_t width) {
  if (const size_t columns = display_width(text); columns < width) text.append(width - columns, ' ');
  return text + "  ";
}

std::string usage(const CommandSpec& c) { return "galley " + c.name + (c.positional.empty() ? "" : " " + c.positional); }

}  // namespace

std::string CommandLine::get(const std::string& flag, const std::string& otherwise) const {
  const auto it = flags.find(flag);
  return it == flags.end() || it->second.empty() ? otherwise : it->second.back();
}

std::vector<std::string> CommandLine::list(const std::string& flag) const {
  std::vector<std::string> out;
  if (!has(flag)) return out;
  const std::string text = get(flag);
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::vector<std::string> CommandLine::words_of(std::initializer_list<const char*> names) const {
  std::vector<std::string> out;
  for (const char* name : names) {
    const auto given = flags.find(name);
    if (given == flags.end()) continue;
    if (given->second.empty()) out.emplace_back(name);  // a switch
    for (const std::string& value : given->second) out.insert(out.end(), {name, value});
  }
  return out;
}

Result<int64_t> CommandLine::integer(const std::string& flag, int64_t otherwise, int64_t least) const {
  if (!has(flag)) return otherwise;
  const std::string text = get(flag);
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < least)
    return recipe_error(flag + " '" + text + "' is not an integer of at least " + std::to_string(least));
  return value;
}

Result<double> CommandLine::number(const std::string& flag, double otherwise, double least, double most) const {
  if (!has(flag)) return otherwise;
  const std::string text = get(flag);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
    char range[64];
    std::snprintf(range, sizeof range, most < 1e300 ? "from %g to %g" : "of at least %g", least, most);
    return recipe_error(flag + " '" + text + "' is not a number " + range);
  }
  return value;
}

Result<CommandLine> parse_command_line(const CommandSpec& command, const std::vector<std::string>& words) {
  CommandLine out;
  out.typed = "galley " + command.name;
  for (const std::string& word : words) out.typed += " " + shell_word(word);
  const std::string hint = "galley " + command.name + " --help";
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--")) {
      out.positional.push_back(words[i]);
      continue;
    }
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const auto flag = std::find_if(command.flags.begin(), command.flags.end(), [&](const FlagSpec& f) { return f.name == name; });
    if (flag == command.flags.end()) {
      std::vector<std::string> known;
      for (const FlagSpec& f : command.flags) known.push_back(f.name);
      const std::string guess = did_you_mean(name, known);
      return recipe_error("galley " + command.name + ": unknown option '" + name + "'", guess.empty() ? hint : guess);
    }
    if (flag->value.empty()) {
      if (equals != std::string::npos) return recipe_error("galley " + command.name + ": " + name + " takes no value", hint);
      out.flags[name];
      continue;
    }
    if (equals == std::string::npos && i + 1 >= words.size())
      return recipe_error("galley " + command.name + ": " + name + " needs a value: " + name + " " + flag->value, hint);
    const std::string value = equals == std::string::npos ? words[++i] : words[i].substr(equals + 1);
    auto& values = out.flags[name];
    if (!flag->repeats && !values.empty()) return recipe_error("galley " + command.name + ": " + name + " is given twice", hint);
    values.push_back(value);
  }
  const bool wants = !command.positional.empty(), optional = command.positional.starts_with("[");
  if (wants && !optional && out.positional.empty())
    return recipe_error("galley " + command.name + ": " + command.positional + " is missing", "usage: " + usage(command));
  const auto named = static_cast<size_t>(std::ranges::count(command.positional, ' ')) + 1;
  const size_t most = command.positional.ends_with("…") ? SIZE_MAX : wants ? named : 0;
  if (out.positional.size() > most)
    return recipe_error("galley " + command.name + ": unexpected argument '" + out.positional[most] + "'", "usage: " + usage(command));
  for (const FlagSpec& f : command.flags)
    if (f.required && !out.has(f.name))
      return recipe_error("galley " + command.name + ": " + f.name + " " + f.value + " is missing", f.help);
  return out;
}

std::string command_help(const CommandSpec& command) {
  std::string out = "usage: " + usage(command);
  for (const FlagSpec& f : command.flags) {
    const std::string text = f.name + (f.value.empty() ? "" : " " + f.value);
    out += f.required ? " " + text : " [" + text + "]" + (f.repeats ? "…" : "");
  }
  out += "\n\n" + command.summary + "\n";
  if (!command.details.empty()) out += "\n" + command.details;
  if (!command.flags.empty()) out += "\nOptions:\n";
  for (const FlagSpec& f : command.flags) out += "  " + pad(f.name + (f.value.empty() ? "" : " " + f.value), 22) + f.help + "\n";
  return out;
}

std::string program_help(const std::vector<CommandSpec>& commands) {
  std::string out = "Galley " GALLEY_VERSION ": trains language models in little memory.\n\nusage: galley COMMAND …\n\n";
  for (const CommandSpec& c : commands)
    out += "  " + pad("galley " + c.name + (c.positional.empty() ? "" : " " + c.positional), 24) + c.summary + "\n";
  out +=
      "\n  galley COMMAND --help     options of a command, with examples\n"
      "  galley --version [--json] the version, also that of the ABI which plugins need, and where its files are\n\n"
      "A first run, from a recipe to a trained model:\n"
      "  galley plan scripts/quickstart.lua --set text=.\n"
      "  galley train scripts/quickstart.lua --set text=. --out runs/first\n"
      "  galley sample runs/first --prompt \"A plan is\"\n\n"
      "Exit codes: 0 done, 1 the run failed, 2 the recipe or the command line is wrong, 3 it does not fit, 4 a plugin is at fault, 130 "
      "interrupted and saved.\n"
      "Environment: GALLEY_PLUGIN_PATH lists folders to search for plugins, separated by colons, after those of --plugin-path.\n"
      "GALLEY_CACHE is the folder for prepared data; the default is ~/.cache/galley.\n"
      "GALLEY_LOG=debug shows what plugins write for debugging, and how long each pass takes.\n";
  return out;
}

namespace {

int fail(const Error& error) {
  std::fflush(stdout);
  const std::optional<std::string> prefix = error_prefix(error);
  if (!prefix) return static_cast<int>(error.exit);
  log(LogLevel::Error,
      *prefix + printable(error.cause, Lines::Escape) + (error.hint.empty() ? "" : "\n  ") + printable(error.hint, Lines::Escape));
  return static_cast<int>(error.exit);
}

/// What the person names may be read, however confined the rest is. Plugins' own files are lent by who loads them.
void lend_named(const CommandSpec& command, const CommandLine& a) {
  for (const std::string& named : a.positional) Confinement::lend(named);
  for (const FlagSpec& flag : command.flags) {
    const auto given = a.flags.find(flag.name);
    if (given == a.flags.end() || flag.name == "--plugin-path" || (flag.value != "DIR" && !flag.value.ends_with("FILE"))) continue;
    for (const std::string& named : given->second) Confinement::lend(named);
  }
}

/// As JSON it says all that a script or a package asks first: whose ABI plugins need, and where the program finds its own files.
int print_version(const std::vector<std::string>& rest) {
  if (rest.empty()) return std::puts("galley " GALLEY_VERSION), 0;
  if (rest != std::vector<std::string>{"--json"})
    return fail(recipe_error("galley --version takes no '" + (rest[0] == "--json" ? rest[1] : rest[0]) + "'", "galley --version --json"));
  const Installation found = find_installation();
  const auto text = [](const std::filesystem::path& path) { return Value(path.string()); };
  print_lines(to_json(Value(Table{{"version", Value(std::string(GALLEY_VERSION))},
                                  {"abi", Value(std::to_string(GALLEY_ABI_MAJOR) + "." + std::to_string(GALLEY_ABI_MINOR))},
                                  {"plugins", text(found.plugins)},
                                  {"families", text(found.families.families)},
                                  {"targets", text(found.targets)},
                                  {"templates", text(found.templates)}}),
                      2) +
              "\n");
  return 0;
}

int run_words(const std::vector<std::string>& words, Stdout out) {
  const std::vector<CommandSpec> commands = all_commands();
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_lines(program_help(commands));
    return words.empty() ? static_cast<int>(Exit::Recipe) : 0;
  }
  if (words[0] == "--version") return print_version({words.begin() + 1, words.end()});
  const auto command = std::find_if(commands.begin(), commands.end(), [&](const CommandSpec& c) { return c.name == words[0]; });
  if (command == commands.end()) {
    std::vector<std::string> names;
    names.reserve(commands.size());
    for (const CommandSpec& c : commands) names.push_back(c.name);
    const std::string guess = did_you_mean(words[0], names);
    return fail(recipe_error("unknown command '" + words[0] + "'", guess.empty() ? "galley --help lists them" : guess));
  }
  const std::vector<std::string> rest(words.begin() + 1, words.end());
  if (std::any_of(rest.begin(), rest.end(), [](const std::string& w) { return w == "--help" || w == "-h"; })) {
    print_lines(command_help(*command));
    return 0;
  }
  const auto arguments = parse_command_line(*command, rest);
  if (!arguments) return fail(arguments.error());
  if (out == Stdout::Closed && command->prints)
    return fail(run_error("stdout is closed, and galley " + command->name + " prints its result", "redirect it to a file: > FILE"));
  lend_named(*command, *arguments);
  if (!command->joins)
    if (const Status alone = check_alone(*command); !alone) return fail(alone.error());
  const Status status = command->run(*arguments);
  return status ? 0 : fail(status.error());
}

}  // namespace

int run_program(const std::vector<std::string>& words, Stdout out) {
  if (const Status opened = open_log(); !opened) return fail(opened.error());
  int code = 0;
  try {
    code = run_words(words, out);
  } catch (const std::bad_alloc&) {
    return fail(run_error("the program itself has run out of memory"));
  } catch (const std::exception& error) {
    return fail(run_error(error.what(), "this is a bug in Galley: please report it"));
  }
  // A result that could not be written is a failure.
  errno = 0;
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && code == 0)
    return fail(run_error(std::string("cannot write to stdout") + (errno ? std::string(": ") + std::strerror(errno) : "")));
  return code;
}

}  // namespace galley
