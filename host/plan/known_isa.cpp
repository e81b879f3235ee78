#include "host/plan/known_isa.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "host/plugins/isa.hpp"

namespace galley {
namespace {

std::set<std::string> known_isas(const std::string& device, std::string_view own, const Plugins& plugins,
                                 const std::filesystem::path& shipped) {
  std::set<std::string> out = {std::string(own)};
  for (const auto& plugin : plugins.all())
    for (const KernelLibrary& library : plugin->manifest.kernel_libraries)
      if (library.device == device) out.insert(library.isa);
  for (const std::string& name : target_names(shipped))
    if (const auto other = read_whole_target(shipped / (name + ".toml")); other && *other && (*other)->device == device)
      out.insert((*other)->isa);
  out.erase("");
  return out;
}

}  // namespace

Status check_isa(const Target& target, std::string_view who, std::string_view own, const Plugins& plugins,
                 const std::filesystem::path& shipped) {
  const std::set<std::string> known = known_isas(target.device, own, plugins, shipped);
  if (target.isa.empty() || known.empty()) return ok();
  if (std::any_of(known.begin(), known.end(), [&](const std::string& isa) { return same_kind(isa, target.isa); })) return ok();
  std::string list;
  for (const std::string& isa : known) list += (list.empty() ? "" : ", ") + isa;
  return recipe_error(std::string(who) + ": 'isa' is '" + target.isa + "', which no kernel for device '" + target.device + "' is built for",
                      "known are " + list + ": give one of them, or one with another number");
}

}  // namespace galley
