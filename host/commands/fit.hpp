// `galley fit`: what a recipe offers, and what of it fits.
#pragma once

#include "host/commands/cli.hpp"

namespace galley {

Status command_fit(const CommandLine& a);

}  // namespace galley
