#include "host/passes/compile.hpp"

#include <spdlog/spdlog.h>

#include <chrono>

#include "host/passes/passes.hpp"

namespace galley {
namespace {

struct Pass {
  PassInfo info;
  Status (*run)(Compilation&);
};

// The compiler. Casts go behind claim, groups of nodes before bind, early copies behind alias.
constexpr Pass passes[] = {
    {{"rewrite", "strategies change the model"}, rewrite},
    {{"claim", "who decides what of parameters and the run"}, claim_model},
    {{"differentiate", "the backward graph"}, differentiate},
    {{"update", "the update graph"}, update},
    {{"claim-made", "who decides what of gradients and states"}, claim_made},
    {{"export", "strategies change what is saved"}, export_model},
    {{"sample", "the row to sample from"}, sample},
    {{"order", "nodes in order, the head in chunks of rows"}, order},
    {{"place", "instructions over tensors in memory classes"}, place},
    {{"bind", "kernels and their workspace"}, bind},
    {{"decide", "what backward keeps"}, decide},
    {{"recompute", "what backward makes again"}, recompute},
    {{"alias", "outputs take over inputs' bytes"}, alias},
};

}  // namespace

std::vector<PassInfo> pass_list() {
  std::vector<PassInfo> out;
  for (const Pass& pass : passes) out.push_back(pass.info);
  return out;
}

Result<Program> compile(Graph& graph, Strategies strategies, Plugins& plugins, const Target& target, const CompileOptions& options) {
  graph.option_slot = [strategies](int use, const std::string& option) -> Result<ScalarSlot> {
    const LoadedStrategy& s = *strategies[static_cast<size_t>(use)];
    ScalarSlot slot;
    slot.option = s.name() + "." + option;
    slot.schedule = TRY(option_schedule(s, option));
    return slot;
  };
  Compilation c = {
      graph, strategies, plugins, target, options, TRY(bind_roles(plugins)), Kernels(plugins, strategies, target, options, graph.length())};
  for (const Pass& pass : passes) {
    const auto begin = std::chrono::steady_clock::now();
    TRY_STATUS(pass.run(c));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    spdlog::debug("pass {}: {:.2f} ms", pass.info.name, took.count());
  }
  return std::move(c.program);
}

}  // namespace galley
