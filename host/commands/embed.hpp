// The command `galley embed`, which writes the vectors that a model has of texts.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_embed(const CommandLine& a);

}  // namespace galley
