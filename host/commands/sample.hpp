// `galley sample`: text from a run's model, or a folder's.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_sample(const CommandLine& arguments);

}  // namespace galley
