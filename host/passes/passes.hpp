// The passes, in the order in which compile.cpp runs them. None changes what a later one has made, and after each a verifier looks at all
// of it. CONTRIBUTING.md has the list with the file of each.
#pragma once

#include "host/passes/compilation.hpp"

namespace galley {

/// Strategies' rewrites of the model, one after the other; each leaves the nodes in order, and none that nobody reads any more.
Status rewrite(Compilation& c);
/// TRAINABLE, STORAGE, PLACEMENT and UPDATE of parameters, COMPUTE of the model's nodes, the run's window.
Status claim_model(Compilation& c);
/// Appends the backward section. Every trainable parameter gets one gradient buffer; a frozen weight gets none, a frozen prefix no input
/// gradients.
Status differentiate(Compilation& c);
/// Claims on gradients.
Status claim_gradients(Compilation& c);
/// Casts where nodes of forward and backward read another dtype than is written, by the dtypes they compute in.
Status cast(Compilation& c);
/// Appends the update section: sums of squares, the norm, then what strategies build, stage by stage. Then the evaluate section: what they
/// let stand for parameters.
Status update(Compilation& c);
/// What a window begins with and an update ends with: the step scalars.
Status window(Compilation& c);
/// Claims on states and on the nodes of the window and the update.
Status claim_made(Compilation& c);
/// Casts in the window and the update section.
Status cast_made(Compilation& c);
/// Updates whose gradients are to live no longer than need be move into backward.
Status immediate(Compilation& c);
/// Strategies' rewrites of what is saved.
Status export_model(Compilation& c);
/// Strategies' nodes for what parameters and states begin with. What nobody reads or saves is not loaded.
Status load(Compilation& c);
/// Sample: the position to sample from and the node that takes its row.
Status sample(Compilation& c);
/// Puts nodes in order and unrolls the head over chunks of rows.
Status order(Compilation& c);
/// Items become instructions over tensors in memory classes: formats unpacked and packed, other classes staged. Micro stands as if nothing
/// were recomputed, every transient has bytes of its own, and no kernel is bound.
Status place(Compilation& c);
/// Chooses kernels, and gives each its workspace.
Status bind(Compilation& c);
/// Asks the strategies that decide what backward keeps.
Status decide(Compilation& c);
/// Puts clones of forward's instructions before what reads them in backward, and copies of what is offloaded after its producer and before
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
