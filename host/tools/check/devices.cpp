#include <map>

#include "host/tools/check/tests.hpp"

namespace galley {

Result<std::vector<CheckDevice>> check_devices(Plugins& plugins, const Plugin& plugin) {
  std::vector<CheckDevice> out;
  const Registered<galley_device> processor = plugins.device("cpu");
  if (!processor) return run_error("there is no device 'cpu' here, on which kernels could be tried");
  out.push_back({processor.table, TRY(describe_target(*processor.table)), "", false});
  std::map<std::string, bool> kinds;  // whether there are kernels for a machine of a certain ISA
  for (const KernelLibrary& library : plugin.manifest.kernel_libraries) kinds[library.device] |= !library.isa.empty();
  for (const galley_kernel* kernel : plugin.library->kernels) kinds.try_emplace(kernel->device, true);
  kinds.erase(out.front().target.device);
  for (const auto& [kind, for_real] : kinds) {
    const Registered<galley_device> emulated = plugins.device(kind + "-emulated"), real = plugins.device(kind);
    for (const auto& device : {for_real || !emulated ? real : Registered<galley_device>(), emulated}) {
      if (!device) continue;
      const Result<Target> target = describe_target(*device.table);
      if (!target) continue;
      const bool is_emulated = device.table == emulated.table;
      out.push_back({device.table, *target, " on " + kind + (is_emulated ? " (emulated)" : ""), is_emulated});
      break;
    }
  }
  return out;
}

}  // namespace galley
