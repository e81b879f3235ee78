// The command `predict`.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_predict(const CommandLine& a);

}  // namespace galley
