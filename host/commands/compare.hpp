// `galley compare`: recipes side by side.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_compare(const CommandLine& a);

}  // namespace galley
