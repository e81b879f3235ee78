#include <set>

#include "host/passes/passes.hpp"

namespace galley {
namespace {

Error no_kernel(const Instruction& i, const Target& target, const KernelChoice& choice) {
  std::string shapes;
  for (const Operand& o : i.inputs)
    if (o.present()) shapes += (shapes.empty() ? "(" : ", (") + tensor_files::numbers_text(o.shape) + ")";
  const bool on_host = i.launch()->on_host;
  const Target by = on_host ? target.of_host() : target;
  return recipe_error("no kernel of device '" + by.device + "' (" + by.isa + ") does op '" + i.launch()->op()->name + "' of node '" +
                          i.name + "' on " + shapes + (on_host ? ", which the host computes while it loads" : "") + choice.refusals,
                      "see which kernels there are with `galley plugins`");
}

}  // namespace

Status bind(Compilation& c) {
  Program& program = c.program;
  std::set<Program::Chosen> chosen;
  for (Segment& segment : program.segments) {
    for (Instruction& i : segment.code) {
      if (!i.launch()) continue;
      const KernelChoice& choice = *TRY(c.kernels.choose(i, program.tensors));
      if (!choice.kernel) return no_kernel(i, c.target, choice);
      give(program, i, choice, i.launch()->on_host ? c.target.host_memory() : 0);
      chosen.insert({i.launch()->op()->name, choice.kernel->name, choice.plugin->manifest.id});
    }
  }
  program.kernels.assign(chosen.begin(), chosen.end());
  return ok();
}

}  // namespace galley
