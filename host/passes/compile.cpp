#include "host/passes/compile.hpp"

#include <chrono>
#include <cstdio>

#include "host/base/log.hpp"
#include "host/passes/dump.hpp"
#include "host/passes/passes.hpp"
#include "host/passes/place/components.hpp"
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

/// Besides, that every node gets what its op takes. Passes after this one move operands, but change none.
Status verify_program_and_operands(Compilation& c, std::string_view pass) {
  TRY_STATUS(verify_program(c, pass));
  return verify_operands(c, pass);
}

// The compiler. The comment after each pass says what holds from there on: later passes rely on it, and none of them changes it unless it says so.
constexpr Pass passes[] = {
    {{"rewrite", "strategies change the model"}, rewrite, verify_graph, dump_graph},
    // Forward nodes come after what they read; one whose readers were given something else is gone. Strategies make no more forward nodes
    // and no more parameters.
    {{"claim", "strategies' claims on parameters and the run"}, claim_model, verify_graph, dump_graph},
    // Every parameter is trained, written or frozen, and has its format, place and updater; every forward node its dtype. No later pass
    // asks about a parameter again.
    {{"differentiate", "the backward graph"}, differentiate, verify_graph, dump_graph},
    // Each trained parameter has one gradient, which some node writes; nothing frozen has one.
    {{"claim-gradients", "strategies' claims on gradients"}, claim_gradients, verify_graph, dump_graph},
    // Gradients have their dtype, life and place.
    {{"cast", "casts between nodes that compute in different dtypes"}, cast, verify_graph, dump_graph},
    // Forward and backward nodes read what their ops take; views and copies in 16 bit stand for parameters there. Strategies see neither:
    // node_get shows what a node read before.
    {{"update", "the update graph"}, update, verify_graph, dump_graph},
    // All states are made, and each trained parameter is written by its updater. Nodes of evaluation make values for parameters, and for
    // nothing else. Rates can no longer be scaled.
    {{"window", "what runs once a window"}, window, verify_graph, dump_graph},
    // Each step scalar that a node reads has a writer, and what the host reads of a step lies in their block.
    {{"claim-made", "strategies' claims on states"}, claim_made, verify_graph, dump_graph},
    // No strategy is asked about anything in the graph again, but for what is saved and loaded.
    {{"cast-made", "casts in the window part and the update graph"}, cast_made, verify_graph, dump_graph},
    // Nodes of window and update read what their ops take.
    {{"immediate", "updates in backward"}, immediate, verify_graph, dump_graph},
    // Backward may hold nodes of updates: they come after the last reader of the parameter that they write.
    {{"export", "strategies change what is saved"}, export_model, verify_graph, dump_graph},
    // What is saved, under which names, is known. Nodes of export read parameters, or what these are evaluated with.
    {{"load", "strategies change what tensors begin with, and what nobody reads has no memory"}, load, verify_graph, dump_graph},
    // A tensor that is not `unused` is read, updated or saved; only these get memory, and only these may later passes make items of.
    {{"sample", "the row to sample from"}, sample, verify_graph, dump_graph},
    {{"order", "nodes in execution order, the head in chunks of rows"}, order, verify_graph, dump_orders},
    // The graph is not changed any more. Items refer to its nodes, and to tensors that only an order has.
    {{"place", "instructions over tensors in memory classes"}, place, verify_program_and_operands, dump_program},
    // Instructions stand in an order that is right without any kernel; each transient has bytes of its own; operands in formats are read
    // by who can, others unpacked. MicroItems says which instructions of micro are an item's.
    {{"bind", "kernels and their workspace"}, bind, verify_program, dump_program},
    // Each node has a kernel. No later pass takes it away without giving the launch that the node joins another one.
    {{"decide", "what backward keeps"}, decide, verify_program, dump_choices},
    // Peaks that strategies were told of hold: they count joined launches, and outputs that take over inputs. Only `overlap` raises them.
    {{"clone", "what backward recomputes"}, clone, verify_program, dump_program},
    // MicroItems holds no longer: instructions have moved.
    {{"fuse", "groups and chains of nodes that one launch computes", true}, fuse, verify_program, dump_program},
    // An instruction may be several nodes; operands between the links of a chain may have no memory.
    {{"alias", "outputs that take over their inputs' memory", true}, alias, verify_program, dump_program},
    // A tensor may hold one value after another; Operand::value says which of them a reader expects.
    {{"overlap", "copies between memory classes that run beside kernels", true}, overlap, verify_program, dump_program},
    // Instructions of different queues run at the same time; events are all that orders them.
};

/// What strategies know the purpose as.
uint32_t purpose_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::Train: return GALLEY_PURPOSE_TRAIN;
    case Purpose::Gradients: return GALLEY_PURPOSE_GRADIENTS;
    case Purpose::Sample: return GALLEY_PURPOSE_SAMPLE;
    case Purpose::Embed: return GALLEY_PURPOSE_EMBED;
    case Purpose::Predict: return GALLEY_PURPOSE_PREDICT;
    case Purpose::Export: return GALLEY_PURPOSE_EXPORT;
    case Purpose::Evaluate: break;
  }
  return GALLEY_PURPOSE_EVAL;
}

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
  graph.describe_component = [&plugins](const GraphTensor& of, uint32_t index) -> Result<GraphTensor> {
    const std::vector<Component> components = TRY(components_of(plugins, of, of.shape));
    if (index >= components.size())
      return plugin_error("'" + of.name + "' has " + std::to_string(components.size()) + " components in format '" + of.storage.format +
                          "', and is asked for number " + std::to_string(index));
    GraphTensor out;
    out.name = of.name + components[index].suffix;
    out.dtype = components[index].dtype;
    out.shape = components[index].shape;
    return out;
  };
  graph.pack_and_unpack = [&graph, &plugins](galley_tensor of, galley_tensor value) { return pack_and_unpack(graph, plugins, of, value); };
  graph.run.steps = options.steps;
  graph.run.purpose = purpose_of(options.purpose);
  graph.run.target.emplace(target);
  Compilation c = {
      graph, strategies, plugins, target, options, TRY(bind_roles(plugins)), Kernels(plugins, strategies, target, options, graph.length())};
  for (const Pass& pass : passes) {
    const auto begin = std::chrono::steady_clock::now();
    if (!options.without.contains(pass.info.name)) TRY_STATUS(pass.run(c));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    TRY_STATUS(pass.verify(c, pass.info.name));
    const std::chrono::duration<double, std::milli> both = std::chrono::steady_clock::now() - begin;
    char line[96];
    std::snprintf(line, sizeof line, "pass %s: %.2f ms, verified in %.2f ms", pass.info.name, took.count(), (both - took).count());
    log(LogLevel::Debug, line);
    if (options.watch) options.watch(pass.info, [&] { return pass.text(c); });
  }
  double flops = 0;
  for (const Instruction& i : c.program.segment(SegmentKind::Micro).code) flops += i.flops;
  c.program.flops_per_token = flops / static_cast<double>(c.program.rows * c.program.length);
  return std::move(c.program);
}

}  // namespace galley
