// The command `galley fit`, which plans what a recipe offers and says what fits.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_fit(const CommandLine& a);

}  // namespace galley
