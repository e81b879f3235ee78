#include "host/plan/known_isa.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "host/plugins/isa.hpp"

namespace galley {
namespace {

std::set<std::string> isas_of_kernels(const std::string& device, const Plugins& plugins) {
  std::set<std::string> out;
  for (const auto& plugin : plugins.all())
    for (const KernelLibrary& library : plugin->manifest.kernel_libraries)
      if (library.device == device) out.insert(library.isa);
  return out;
}

std::set<std::string> isas_of_targets(const std::string& device, const std::filesystem::path& shipped) {
  std::set<std::string> out;
  for (const std::string& name : target_names(shipped))
    if (const auto other = read_whole_target(shipped / (name + ".toml")); other && *other && (*other)->device == device)
      out.insert((*other)->isa);
  return out;
}

}  // namespace

Status check_isa(const Target& target, std::string_view who, std::string_view own, const Plugins& plugins,
                 const std::filesystem::path& shipped) {
  if (target.isa.empty()) return ok();
  std::set<std::string> known;
  const auto knows = [&](std::set<std::string> more) {
    known.merge(more);
    known.erase("");
    return std::any_of(known.begin(), known.end(), [&](const std::string& isa) { return same_kind(isa, target.isa); });
  };
  // Targets are files, which are read only where nobody else knows it.
  if (knows({std::string(own)}) || knows(isas_of_kernels(target.device, plugins)) || knows(isas_of_targets(target.device, shipped)) ||
      known.empty())
    return ok();
  std::string list;
  for (const std::string& isa : known) list += (list.empty() ? "" : ", ") + isa;
  return recipe_error(std::string(who) + ": 'isa' is '" + target.isa + "', which no kernel for device '" + target.device + "' is built for",
                      "known are " + list + ": give one of them, or one with another number");
}

}  // namespace galley
