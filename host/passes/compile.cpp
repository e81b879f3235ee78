#include "host/passes/compile.hpp"

#include <chrono>
#include <cstdio>

#include "host/base/log.hpp"
#include "host/passes/dump.hpp"
#include "host/passes/passes.hpp"
#include "host/passes/verify.hpp"
#include "host/passes/verify_operands.hpp"
#include "host/plan/check.hpp"

namespace galley {
namespace {

struct Pass {
  PassInfo info;
  Status (*run)(Compilation&);
  Status (*verify)(Compilation&, std::string_view pass);
  std::string (*text)(const Compilation&);
};

/// What the program rests on: operands within their tensors, lives, events.
Status verify_program(Compilation& c, std::string_view pass) {
  Status checked = check_program(c.program, c.target);
  if (checked) return ok();
  Error error = std::move(checked).error();
  error.cause = "after pass '" + std::string(pass) + "': " + error.cause;
  return error;
}

/// Besides, that every node gets what its op takes. Passes behind this one move operands, but change none.
Status verify_program_and_operands(Compilation& c, std::string_view pass) {
  TRY_STATUS(verify_program(c, pass));
  return verify_operands(c, pass);
}

// The compiler.
constexpr Pass passes[] = {
    {{"rewrite", "strategies change the model"}, rewrite, verify_graph, dump_graph},
    {{"claim", "strategies' claims on parameters and the run"}, claim_model, verify_graph, dump_graph},
    {{"differentiate", "the backward graph"}, differentiate, verify_graph, dump_graph},
    {{"claim-gradients", "strategies' claims on gradients"}, claim_gradients, verify_graph, dump_graph},
    {{"cast", "casts between nodes that compute in different dtypes"}, cast, verify_graph, dump_graph},
    {{"update", "the update graph"}, update, verify_graph, dump_graph},
    {{"window", "what runs once a window"}, window, verify_graph, dump_graph},
    {{"claim-made", "strategies' claims on states"}, claim_made, verify_graph, dump_graph},
    {{"cast-made", "casts in the window part and the update graph"}, cast_made, verify_graph, dump_graph},
    {{"immediate", "updates in backward"}, immediate, verify_graph, dump_graph},
    {{"export", "strategies change what is saved"}, export_model, verify_graph, dump_graph},
    {{"load", "strategies change what tensors begin with, and what nobody reads has no memory"}, load, verify_graph, dump_graph},
    {{"sample", "the row to sample from"}, sample, verify_graph, dump_graph},
    {{"order", "nodes in execution order, the head in chunks of rows"}, order, verify_graph, dump_orders},
    {{"place", "instructions over tensors in memory classes"}, place, verify_program_and_operands, dump_program},
    {{"bind", "kernels and their workspace"}, bind, verify_program, dump_program},
    {{"decide", "what backward keeps"}, decide, verify_program, dump_choices},
    {{"clone", "what backward recomputes"}, clone, verify_program, dump_program},
    {{"fuse", "groups and chains of nodes that one launch computes"}, fuse, verify_program, dump_program},
    {{"alias", "outputs that take over their inputs' memory"}, alias, verify_program, dump_program},
    {{"overlap", "copies between memory classes that run beside kernels"}, overlap, verify_program, dump_program},
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
    TRY_STATUS(pass.verify(c, pass.info.name));
    const std::chrono::duration<double, std::milli> both = std::chrono::steady_clock::now() - begin;
    char line[96];
    std::snprintf(line, sizeof line, "pass %s: %.2f ms, verified in %.2f ms", pass.info.name, took.count(), (both - took).count());
    log(LogLevel::Debug, line);
    if (options.watch) options.watch(pass.info, [&] { return pass.text(c); });
  }
  return std::move(c.program);
}

}  // namespace galley
