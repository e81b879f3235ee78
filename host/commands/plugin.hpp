// galley plugin: begins a plugin from one of the SDK's templates.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_plugin(const CommandLine& a);

/// "optimizer, adapter, …": the templates that there are, for help.
extern const char* const kPluginKinds;

}  // namespace galley
