// Warns of kernels that no plan can use: without it, a wrong name of an op or a device would pass in silence.
#pragma once

#include <string>
#include <vector>

#include "host/plan/program.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

/// Returns a line for each kernel of these plugins whose op or device nobody provides, and one for each plugin of `asked` whose kernels the
/// program does not use. The plugins must be loaded.
std::vector<std::string> unused_kernels(Plugins& plugins, const Target& target, const Program& program,
                                        const std::vector<std::string>& asked, const std::vector<std::string>& used);

}  // namespace galley
