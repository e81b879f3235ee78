// Makes the run with which `galley resume --steps` and `--epochs` go on after the end of another one, which stays as it is.
#pragma once

#include <filesystem>
#include <string>

#include "host/commands/cli.hpp"
#include "host/session/run.hpp"

namespace galley {

/// Returns how long the run is to be, as --steps and --epochs say; neither: nothing is given. --out has to be there with them, and new.
Result<RunLength> longer_asked(const CommandLine& a);

/// Makes the run `out`, which goes on from the newest state of the run in `directory`, and is as long as `run.study` says, whose steps are
/// settled. It has the record, that state, the state of the lowest validation loss, choices of kernels and metrics. It is written beside
/// `out` and renamed: it is there whole or not at all. Returns what to tell people: where it begins, and which options of strategies a
/// schedule over other steps gives other values. Exit code Recipe where there is nothing to go on from or to: no state, as many steps or
/// more done, ended early, a run of somebody else. [main-thread]
Result<std::string> begin_longer(const Run& run, const Source& source, const std::filesystem::path& directory,
                                 const std::filesystem::path& out, const StudyOptions& options);

}  // namespace galley
