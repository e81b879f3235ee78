// Checks that somebody knows the instruction set (ISA) that a target names.
#pragma once

#include <filesystem>
#include <string_view>

#include "host/base/result.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

/// Refuses the ISA of a target if it is of another kind than all that are known for its device, because there would be slow kernels or
/// none. Known are `own`, which is this machine's, those of the libraries of kernels, and those of the targets in `shipped`. An empty ISA
/// passes, and any one if none is known. The error (exit code Recipe) names the known ones, and calls the target `who`.
Status check_isa(const Target& target, std::string_view who, std::string_view own, const Plugins& plugins,
                 const std::filesystem::path& shipped);

}  // namespace galley
