// `galley check`: a plugin's ops, held against what they say of themselves.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

/// Exit code Plugin where something is found.
Status command_check(const CommandLine& a);

}  // namespace galley
