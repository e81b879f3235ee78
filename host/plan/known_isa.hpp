// Whether anybody knows the instruction set that a target names.
#pragma once

#include <filesystem>
#include <string_view>

#include "host/base/result.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

/// Refuses the ISA of a target, for which there would be slow kernels or none, if it is of another kind than all that are known for its
/// device: `own`, which is this machine's, those of the libraries of kernels, and those of the targets in `shipped`. An empty one, and any
/// where none is known, is let through. The error names those that are known, exit code Recipe. `who` stands for the target in it.
Status check_isa(const Target& target, std::string_view who, std::string_view own, const Plugins& plugins,
                 const std::filesystem::path& shipped);

}  // namespace galley
