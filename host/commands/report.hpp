// The command `galley report`, which writes a page about runs or a comparison.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_report(const CommandLine& a);

}  // namespace galley
