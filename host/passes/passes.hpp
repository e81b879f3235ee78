// The passes of the compiler, in the order in which compile.cpp runs them. After each pass, a verifier checks the whole graph or program.
// CONTRIBUTING.md lists the file of each pass; docs/tour.md shows what each makes of a small model.
#pragma once

#include "host/passes/compilation.hpp"

namespace galley {

/// Lets strategies rewrite the model, one after the other. Each leaves the nodes in order, and removes those that nobody reads any more.
Status rewrite(Compilation& c);
/// Asks for claims: TRAINABLE, STORAGE, PLACEMENT and UPDATE of parameters, COMPUTE of the model's nodes, the run's window.
Status claim_model(Compilation& c);
/// Appends the backward section. Every trainable parameter gets one gradient buffer; a frozen weight gets none, a frozen prefix no input
/// gradients.
Status differentiate(Compilation& c);
/// Asks for claims on gradients.
Status claim_gradients(Compilation& c);
/// Inserts casts where nodes of forward and backward read another dtype than is written, by the dtypes that they compute in.
Status cast(Compilation& c);
/// Makes forward again, of some positions and of one, with caches of keys and values, in programs that generate by them.
Status cache(Compilation& c);
/// Appends the update section: sums of squares, the norm, then the nodes of strategies, stage by stage. Then appends the evaluate section:
/// the values that replace parameters when the model is evaluated.
Status update(Compilation& c);
/// Appends the nodes that make the step scalars when a window begins, and those that end an update.
Status window(Compilation& c);
/// Asks for claims on states and on the nodes of the window and the update.
Status claim_made(Compilation& c);
/// Inserts casts in the window and the update section.
Status cast_made(Compilation& c);
/// Moves updates into backward, where a gradient is to live no longer than its last contribution.
Status immediate(Compilation& c);
/// Lets strategies change what is saved.
Status export_model(Compilation& c);
/// Lets strategies append nodes for what parameters and states begin with. Marks tensors that nobody reads or saves: they get no memory.
Status load(Compilation& c);
/// Adds the position to sample from and the node that takes its row, in programs that sample.
Status sample(Compilation& c);
/// Divides parameters, gradients and states between the processes of a run, where strategies claim it.
Status shard(Compilation& c);
/// Puts nodes in order and unrolls the head over chunks of rows.
Status order(Compilation& c);
/// Turns items into instructions over tensors in memory classes: unpacks and packs formats, and copies what lies where nothing computes.
/// Micro recomputes nothing yet, every transient has bytes of its own, and no kernel is bound.
Status place(Compilation& c);
/// Chooses a kernel for each instruction, and gives it its workspace.
Status bind(Compilation& c);
/// Asks strategies what backward keeps, recomputes, offloads or compresses.
Status decide(Compilation& c);
/// Inserts clones of forward's instructions before their readers in backward. Inserts copies of an offloaded tensor, and what packs and
/// unpacks a compressed one, after its producer and before its readers.
Status clone(Compilation& c);
/// Leaves out exchanges of what is there already, and moves those before others that would wait for them.
Status exchanges(Compilation& c);
/// Makes one launch of groups and chains of nodes, where there are kernels for them.
Status fuse(Compilation& c);
/// Lets outputs take over the memory of inputs that nobody reads any more (donated buffers).
Status alias(Compilation& c);
/// Lets copies between memory classes run beside kernels, on queues of their own: copies in are prefetched, copies out finish while later
/// work runs, and readers that are close to each other share one copy. By the target's seconds no segment takes longer. A class that has a
/// limit stays within it; another may grow by what is in flight. `decide` shows peaks without this growth.
Status overlap(Compilation& c);

}  // namespace galley
