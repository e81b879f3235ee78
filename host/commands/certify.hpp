// The command `galley certify`, which runs a recipe's strategies off and on.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

/// Runs the command. Exit code Plugin if a strategy does not do what it declares.
Status command_certify(const CommandLine& a);

}  // namespace galley
