// The command `galley sample`, which generates text with the model of a run or of a folder.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_sample(const CommandLine& arguments);

}  // namespace galley
