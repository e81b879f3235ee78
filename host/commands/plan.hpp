// The command `galley plan`, which says what a recipe will need before a device is opened.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_plan(const CommandLine& a);

}  // namespace galley
