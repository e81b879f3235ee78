// `galley certify`: a recipe's strategies, off and on.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

/// Exit code Plugin where a strategy does not do what it declares.
Status command_certify(const CommandLine& a);

}  // namespace galley
