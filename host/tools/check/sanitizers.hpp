// Plugins that are built with sanitizers: -fsanitize=address,undefined. Their runtimes have to be loaded before everything else, so tests of
// such a plugin are started with them, and whatever they report is a finding.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace galley {

/// NAME=VALUE for the process of a test, by what the libraries in a plugin's folder need. Empty: they need no sanitizer. Options of a runtime
/// that the user has set stay as they are.
std::vector<std::string> sanitizer_environment(const std::filesystem::path& folder);

/// The sanitizers that this process runs under: "AddressSanitizer, UndefinedBehaviorSanitizer"; "": none.
std::string sanitizers_here();

/// What a sanitizer says in a process's output, in one line; "": nothing.
std::string sanitizer_report(const std::string& said);

}  // namespace galley
