// galley embed
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_embed(const CommandLine& a);

}  // namespace galley
