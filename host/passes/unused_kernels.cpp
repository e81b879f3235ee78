#include "host/passes/unused_kernels.hpp"

#include <algorithm>
#include <set>

#include "host/base/nearest.hpp"

namespace galley {
namespace {

/// Of the plugin's library, and of its libraries of kernels that are open.
std::vector<const galley_kernel*> kernels_of(const Plugin& plugin) {
  std::vector<const galley_kernel*> out;
  const auto take = [&](const Library* library) {
    if (library) out.insert(out.end(), library->kernels.begin(), library->kernels.end());
  };
  take(plugin.library);
  for (const auto& [device, opened] : plugin.kernels) take(opened.library);
  return out;
}

std::vector<std::string> links_of(const std::string& op) {
  std::vector<std::string> out(1);
  for (const char letter : op) {
    if (letter == '>') out.emplace_back();
    else out.back() += letter;
  }
  return out;
}

/// ", which no plugin provides; did you mean 'rms_norm'?"
std::string nobody(const std::string& name, const std::vector<std::string>& names) {
  const std::string hint = did_you_mean(name, names);
  return "'" + name + "', which no plugin provides" + (hint.empty() ? "" : "; " + hint);
}

}  // namespace

std::vector<std::string> unused_kernels(Plugins& plugins, const Target& target, const Program& program,
                                        const std::vector<std::string>& asked, const std::vector<std::string>& used) {
  std::vector<std::string> out;
  std::set<std::string> all(asked.begin(), asked.end());
  all.insert(used.begin(), used.end());
  std::vector<std::string> devices = {target.device};
  for (const auto& plugin : plugins.all()) devices.insert(devices.end(), plugin->manifest.devices.begin(), plugin->manifest.devices.end());
  for (const auto& plugin : plugins.all()) {
    const std::string& id = plugin->manifest.id;
    if (!all.contains(id)) continue;
    std::set<std::string> said, elsewhere;
    bool here = false;
    for (const galley_kernel* kernel : kernels_of(*plugin)) {
      const std::string who = "plugin '" + id + "': kernel '" + kernel->name + "' is for the ";
      here = here || target.device == kernel->device;
      if (target.device != kernel->device) elsewhere.insert(kernel->device);
      // A device may be one that is not installed here; only a name close to one that is looks like a mistake.
      if (!did_you_mean(kernel->device, devices).empty() && std::ranges::find(devices, kernel->device) == devices.end())
        said.insert(who + "device " + nobody(kernel->device, devices));
      for (const std::string& op : links_of(kernel->op))
        if (!plugins.op(op)) said.insert(who + "op " + nobody(op, plugins.op_names()));
    }
    const bool chosen = std::ranges::any_of(program.kernels, [&](const Program::Chosen& k) { return k.plugin == id; });
    if (!chosen && std::ranges::find(asked, id) != asked.end()) {
      std::string others;
      for (const std::string& device : elsewhere) others += (others.empty() ? "'" : ", '") + device + "'";
      std::string why = "this program has none of their ops, they refuse what it has, or others have a higher priority";
      if (!here) why = others.empty() ? "it has no kernels" : "its kernels are for the device " + others;
      said.insert("'kernels' names the plugin '" + id + "', but the plan has none of its kernels for device '" + target.device +
                  "': " + why);
    }
    out.insert(out.end(), said.begin(), said.end());
  }
  return out;
}

}  // namespace galley
