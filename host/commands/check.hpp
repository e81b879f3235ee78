// The command `galley check`, which checks a plugin's ops by what they declare.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

/// Runs the command. Exit code Plugin if it finds something.
Status command_check(const CommandLine& a);

}  // namespace galley
