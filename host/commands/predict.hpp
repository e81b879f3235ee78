// The command `galley predict`, which gives labels or values to texts.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_predict(const CommandLine& a);

}  // namespace galley
