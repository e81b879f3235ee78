// What the passes hand on, and the passes themselves. Each reads what earlier ones have made and adds one thing of its own; none changes
// what a later one has made, and between two of them a verifier looks at all of it.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "galley/saved.h"
#include "host/passes/claim.hpp"
#include "host/passes/compile.hpp"
#include "host/passes/items.hpp"
#include "host/passes/kernels.hpp"
#include "host/passes/roles.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// By the claims on parameters and the run.
struct Decisions {
  std::vector<galley_tensor> trainable;  ///< parameters, in order of making
  int64_t micro_batches = 1;
  int64_t window_tokens = 0;  ///< > 0: as many micro-batches as come closest to it, micro_batches at most
};

/// Which instructions of micro an item became, before anything is recomputed: item i has [begin[i], begin[i + 1]).
struct MicroItems {
  size_t forward = 0;  ///< so many items are forward's, then come the head's, then backward's
  size_t head = 0;
  std::vector<uint32_t> begin;
  std::vector<TensorId> tensors;  ///< by graph tensor, the transients of micro; no_tensor: not there
};

/// What forward leaves for head and backward, and what enters blocks.
struct SavedSet {
  std::vector<galley_tensor> tensors;
  std::deque<std::vector<uint64_t>> parents;
  std::deque<std::vector<double>> offload_seconds;
  std::vector<galley_saved_item> items;
  int64_t blocks = 0;
};

struct Compilation {
  Graph& graph;
  Strategies strategies;
  Plugins& plugins;
  const Target& target;
  const CompileOptions& options;
  Roles roles;
  Kernels kernels;

  Decisions decisions = {};                 ///< claim
  std::vector<galley_tensor> squares = {};  ///< update: of each trainable parameter's gradient the sum of squares, in the block
  galley_tensor applied = 0;                ///< window: how many steps have been applied
  Orders orders = {};                       ///< order
  galley_tensor sample_logits = 0;          ///< order
  Program program = {};                     ///< place, bind; clone and fuse change its code
  MicroItems micro = {};                    ///< place
  SavedSet saved = {};                      ///< decide
  std::vector<uint32_t> choices = {};       ///< decide: one a saved tensor
  int64_t budget = 0;                       ///< decide: bytes of class 0 that a strategy allows; 0: none does
  /// verify: by node, the inputs that its shape rule has seen.
  std::vector<std::vector<galley_tensor>> inferred = {};

  bool backward() const { return options.purpose == Purpose::Train || options.purpose == Purpose::Gradients; }
  bool trains() const { return options.purpose == Purpose::Train; }
  /// Whether there is a window part, and with it numbers that host and device exchange.
  bool steps() const { return !graph.section(Section::Window).empty(); }
  bool saves() const { return options.purpose == Purpose::Export || (trains() && options.exports); }
  /// To evaluate, to sample or to export, by weights that only an update has (eval_as, export_as).
  bool averages() const;
  Tensors tensors() const { return {graph, orders}; }
  /// Whether no memory class has grown, from peaks `before` to peaks `after`, beyond its capacity, nor all that counts beyond --memory.
  bool within_limits(const std::vector<int64_t>& before, const std::vector<int64_t>& after) const;
};

/// "keep"; "offload to pinned".
std::string choice_text(const Compilation& c, uint32_t choice);

/// "STEP" of GALLEY_STAGE_STEP.
const char* stage_name(uint32_t stage);

/// Strategies' rewrites of the model, in the recipe's order; each leaves the nodes in order.
Status rewrite(Compilation& c);
/// TRAINABLE, STORAGE, PLACEMENT, SHARD and UPDATE of parameters, COMPUTE of the model's nodes, the run's window.
Status claim_model(Compilation& c);
/// Appends the backward section. Every trainable parameter gets one gradient buffer; a frozen weight gets none, a frozen prefix no input
/// gradients.
Status differentiate(Compilation& c);
/// Casts where nodes of forward and backward read another dtype than is written, by the dtypes they compute in.
Status cast(Compilation& c);
/// Appends the update section: sums of squares, the norm, then CHECK, CLIP, STEP and AFTER.
Status update(Compilation& c);
/// What a window begins with and an update ends with: the step scalars.
Status window(Compilation& c);
/// Claims on gradients.
Status claim_gradients(Compilation& c);
/// Claims on states and on the update's nodes.
Status claim_made(Compilation& c);
/// Casts in the update section.
Status cast_made(Compilation& c);
/// Updates whose gradients are to live no longer than need be move into backward.
Status immediate(Compilation& c);
/// Strategies' rewrites of what is saved.
Status export_model(Compilation& c);
/// To export only: what no file is made from is not loaded.
void keep_exported(Compilation& c);
/// Sample: the position to sample from and the node that takes its row.
Status sample(Compilation& c);
/// Puts nodes in order and unrolls the head over chunks of rows.
Status order(Compilation& c);
/// Items become instructions over tensors in memory classes: formats unpacked and packed, other classes staged. Micro stands as if nothing
/// were recomputed, every transient has bytes of its own, and no kernel is bound.
Status place(Compilation& c);
/// Chooses kernels, and gives each its workspace.
Status bind(Compilation& c);
/// What can be decided on: saved tensors and their prices.
Result<SavedSet> find_saved(const Compilation& c);
/// Asks the strategies that decide what backward keeps.
Status decide(Compilation& c);
/// Puts clones of forward's instructions before what reads them in backward, and copies of what is offloaded behind its producer and before
/// its readers.
Status clone(Compilation& c);
/// Makes one launch of groups and chains of nodes, where there are kernels for them.
Status fuse(Compilation& c);
/// Lets outputs take over the buffers of inputs that nobody reads any more.
Status alias(Compilation& c);
/// Lets copies on queues of their own run beside kernels: in before they are needed, out while what follows runs; one copy for readers that
/// are close to each other. No segment takes longer by the target's seconds, and no class more than its limit, or, where it has none, than
/// what is in flight beyond. The peaks that `decide` shows are those of before.
Status overlap(Compilation& c);

}  // namespace galley
