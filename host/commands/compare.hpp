// `galley compare`: recipes side by side.
#pragma once

#include <string>

#include "host/base/new_file.hpp"
#include "host/commands/cli.hpp"
#include "host/session/study.hpp"

namespace galley {

Status command_compare(const CommandLine& a);

/// Whether the file returns compare { … }.
Result<bool> is_comparison(const std::string& recipe, const StudyOptions& options);
/// `galley plan` of such a file: a row a variant; and the page of --html, or null.
Status print_plans(const std::string& recipe, const StudyOptions& options, NewFile* page);

}  // namespace galley
