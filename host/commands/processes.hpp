// The processes that share a run, as commands see them: a launcher (mpirun, torchrun, Slurm) has started them, and a plugin joins them.
// Rank 0 prints; the others are silent, unless one has an error of its own.
#pragma once

#include <optional>
#include <string>

#include "host/commands/cli.hpp"
#include "host/ranks/party.hpp"
#include "host/session/train.hpp"

namespace galley {

/// Joins the processes that were started together with this one, by the plugin that does so for the options' device, and sets their number
/// and this one's in the options. From then on, what a rank other than 0 prints to stdout, and its warnings, go nowhere. Returns when all
/// have come here. Once in a program. `meeting` is a folder that all see. [main-thread]
Result<Party*> join_processes(StudyOptions& options, const std::filesystem::path& meeting);

/// Refuses a command that takes one process, where a launcher has started several. Some can plan for as many.
Status check_alone(const CommandSpec& command);

/// Begins to tell the others that this process is there, and where it is, and to look after them: one that is gone is named, and the run
/// ends. The run's directory is there. To be called by all; one process alone has nobody to look after.
Status look_after(const std::filesystem::path& directory, TrainOptions& options);

/// Returns what an error of this process begins with: "rank 3 (machine b): "; nothing: another process shows it. The others learn of it.
std::optional<std::string> error_prefix(const Error& error);

/// Leaves the processes at the end of the program. If this one has failed by itself, that ends the others.
void leave_processes();

}  // namespace galley
