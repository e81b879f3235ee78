#include "host/passes/compile.hpp"

#include <chrono>
#include <cstdio>

#include "host/base/log.hpp"
#include "host/passes/passes.hpp"

namespace galley {
namespace {

struct Pass {
  PassInfo info;
  Status (*run)(Compilation&);
};

// The compiler. The comment after each pass says what holds from there on: later passes rely on it, and none of them changes it unless it says so.
constexpr Pass passes[] = {
    {{"rewrite", "strategies change the model", Leaves::Graph}, rewrite},
    // Forward nodes come after what they read; one whose readers were given something else is gone. Strategies make no more forward nodes
    // and no more parameters.
    {{"claim", "strategies' claims on parameters and the run", Leaves::Graph}, claim_model},
    // Every parameter is trained, written or frozen, and has its format, place and updater; every forward node its dtype. No later pass
    // asks about a parameter again.
    {{"differentiate", "the backward graph", Leaves::Graph}, differentiate},
    // Each trained parameter has one gradient, which some node writes; nothing frozen has one.
    {{"claim-gradients", "strategies' claims on gradients", Leaves::Graph}, claim_gradients},
    // Gradients have their dtype, life and place.
    {{"cast", "casts between nodes that compute in different dtypes", Leaves::Graph}, cast},
    // Forward and backward nodes read what their ops take; views and copies in 16 bit stand for parameters there. Strategies see neither:
    // node_get shows what a node read before.
    {{"cache", "caches of keys and values, to generate with", Leaves::Graph}, cache},
    // The sections prompt and next stand for forward, where they are there: nothing is executed of forward then.
    {{"update", "the update graph", Leaves::Graph}, update},
    // All states are made, and each trained parameter is written by its updater. Nodes of evaluation make values for parameters, and for
    // nothing else. Rates can no longer be scaled.
    {{"window", "what runs once a window", Leaves::Graph}, window},
    // Each step scalar that a node reads has a writer, and what the host reads of a step lies in their block.
    {{"claim-made", "strategies' claims on states", Leaves::Graph}, claim_made},
    // No strategy is asked about anything in the graph again, but for what is saved and loaded.
    {{"cast-made", "casts in the window part and the update graph", Leaves::Graph}, cast_made},
    // Nodes of window and update read what their ops take.
    {{"immediate", "updates in backward", Leaves::Graph}, immediate},
    // Backward may hold nodes of updates: they come after the last reader of the parameter that they write.
    {{"export", "strategies change what is saved", Leaves::Graph}, export_model},
    // What is saved, under which names, is known. Nodes of export read parameters, or what these are evaluated with.
    {{"load", "strategies change what tensors begin with, and what nobody reads has no memory", Leaves::Graph}, load},
    // A tensor that is not `unused` is read, updated or saved; only these get memory, and only these may later passes make items of.
    {{"sample", "the row to sample from", Leaves::Graph}, sample},
    {{"shard", "which process has which part of parameters, gradients and states", Leaves::Graph}, shard},
    // A tensor that is divided is read whole, or by nodes of the update that compute with the own part.
    {{"order", "nodes in execution order, the head in chunks of rows", Leaves::Orders}, order},
    // The graph is not changed any more. Items refer to its nodes, and to tensors that only an order has.
    {{"place", "instructions over tensors in memory classes", Leaves::Operands}, place},
    // Instructions stand in an order that is right without any kernel; each transient has bytes of its own; operands in formats are read
    // by who can, others unpacked. MicroItems says which instructions of micro are an item's.
    {{"bind", "kernels and their workspace", Leaves::Program}, bind},
    // Each node has a kernel. No later pass takes it away without giving the launch that the node joins another one.
    {{"decide", "what backward keeps", Leaves::Choices}, decide},
    // Peaks that strategies were told of hold: they count joined launches, and outputs that take over inputs. Only `overlap` raises them.
    {{"clone", "what backward recomputes", Leaves::Program}, clone},
    // MicroItems holds no longer: instructions have moved.
    {{"exchanges", "which exchanges between processes there are, and in which order", Leaves::Program, true}, exchanges},
    // No later pass changes them or their order, which are the same in the programs of all processes.
    {{"fuse", "groups and chains of nodes that one launch computes", Leaves::Program, true}, fuse},
    // An instruction may be several nodes; operands between the links of a chain may have no memory.
    {{"alias", "outputs that take over their inputs' memory", Leaves::Program, true}, alias},
    // A tensor may hold one value after another; Operand::value says which of them a reader expects.
    {{"overlap", "copies between memory classes that run beside kernels", Leaves::Program, true}, overlap},
    // Instructions of different queues run at the same time; events are all that orders them.
};

/// Processes that a link joins are on an axis, if all of them are on such axes.
std::shared_ptr<const Axes> axes_of(const Lanes& lanes, const Target& target) {
  auto out = std::make_shared<Axes>(lanes.ranks, lanes.rank, lanes.together, lanes.axis);
  if (lanes.together > 1) return out;
  for (const Link& link : target.links) {
    const int64_t joined = link.joins(lanes.ranks) ? lanes.ranks : link.ranks;
    if (lanes.ranks % joined == 0) out->add(link.name, joined);
  }
  return out;
}

}  // namespace

std::vector<PassInfo> pass_list() {
  std::vector<PassInfo> out;
  for (const Pass& pass : passes) out.push_back(pass.info);
  return out;
}

Result<Program> compile(Draft& draft, Strategies strategies, Plugins& plugins, const Target& target, const CompileOptions& options) {
  draft.run.steps = options.steps;
  draft.run.axes = axes_of(options.lanes, target);
  draft.run.purpose = static_cast<uint32_t>(options.purpose);
  draft.run.target.emplace(target);
  Compilation c = {draft,
                   draft.graph,
                   strategies,
                   plugins,
                   target,
                   options,
                   TRY(bind_roles(plugins)),
                   Kernels(plugins, strategies, target, options, draft.graph.length())};
  for (const Pass& pass : passes) {
    const auto begin = std::chrono::steady_clock::now();
    if (!options.without.contains(pass.info.name)) TRY_STATUS(pass.run(c));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    TRY_STATUS(options.check(c, pass.info));
    const std::chrono::duration<double, std::milli> both = std::chrono::steady_clock::now() - begin;
    char line[96];
    std::snprintf(line, sizeof line, "pass %s: %.2f ms, verified in %.2f ms", pass.info.name, took.count(), (both - took).count());
    log(LogLevel::Debug, line);
    if (options.watch) options.watch(pass.info, c);
  }
  double flops = 0;
  for (const Instruction& i : c.program.segment(SegmentKind::Micro).code) flops += i.launch() ? i.launch()->flops : 0;
  c.program.flops_per_token = flops / static_cast<double>(c.program.rows * c.program.length);
  return std::move(c.program);
}

}  // namespace galley
