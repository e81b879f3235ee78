// The command `galley compare`, which trains recipes side by side.
#pragma once

#include <string>

#include "host/base/new_file.hpp"
#include "host/commands/cli.hpp"
#include "host/session/study.hpp"

namespace galley {

Status command_compare(const CommandLine& a);

/// Returns whether the file returns compare { … }.
Result<bool> is_comparison(const std::string& recipe, const StudyOptions& options);
/// Does `galley plan` for such a file: prints a row for each variant, and writes the page of --html, unless that is null.
Status print_plans(const std::string& recipe, const StudyOptions& options, NewFile* page);

}  // namespace galley
