// Kernels that somebody wants and that no plan can have: the words that a wrong name would not get otherwise.
#pragma once

#include <string>
#include <vector>

#include "host/plan/program.hpp"
#include "host/plan/target.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

/// A line for each kernel of these plugins whose op or device nobody provides, and one for each plugin of `asked` of whose kernels the
/// program has none. The plugins are loaded.
std::vector<std::string> unused_kernels(Plugins& plugins, const Target& target, const Program& program,
                                        const std::vector<std::string>& asked, const std::vector<std::string>& used);

}  // namespace galley
