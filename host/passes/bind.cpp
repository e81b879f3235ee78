#include <set>

#include "host/passes/passes.hpp"

namespace galley {
namespace {

Error no_kernel(const Instruction& i, const Target& target, const KernelChoice& choice) {
  std::string shapes;
  for (const Operand& o : i.inputs) {
    if (!o.present()) continue;
    shapes += shapes.empty() ? "(" : ", (";
    for (size_t d = 0; d < o.shape.size(); ++d) shapes += (d ? ", " : "") + std::to_string(o.shape[d]);
    shapes += ")";
  }
  return recipe_error("no kernel of device '" + target.device + "' (" + target.isa + ") does op '" + i.launch()->op()->name +
                          "' of node '" + i.name + "' on " + shapes + choice.refusals,
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
      give(program, i, choice);
      chosen.insert({i.launch()->op()->name, choice.kernel->name, choice.plugin->manifest.id});
    }
  }
  program.kernels.assign(chosen.begin(), chosen.end());
  return ok();
}

}  // namespace galley
