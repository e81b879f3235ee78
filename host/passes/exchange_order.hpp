// Which exchanges there are, and which comes first where kernels will wait for one of them: the pass `exchanges`.
//
// All of it follows from what is the same in the programs of all processes: the exchanges with the sizes of whole tensors, the arithmetic
// between them, and which tensors are written. So the processes exchange the same, in the same order. It is decided before nodes are joined,
// because which are depends on the memory that a process has.
#pragma once

#include <vector>

#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// Returns the queue to which exchanges go; 0: they stay among the kernels. Where nobody knows how long they take, nothing can be hidden.
uint32_t exchange_queue(const Program& program, const Target& target);

/// Leaves out gathers of what the exchange before has gathered, too: the pieces of a head read its weight one after the other. If exchanges
/// take longer than the arithmetic, also those of what another reader in the same stretch of a block has: backward recomputes a block and
/// then makes its gradients, and the block's weights stay there from the one to the other.
void share_gathers(const Program& program, const Target& target, std::vector<Instruction>& code);

/// Moves gathers of weights before sums of gradients that would keep kernels waiting for them: exchanges have one queue, in which a sum that
/// nobody needs soon would come first because it is made first. Both by the link's seconds, beside the arithmetic of the kernels between
/// them. What waits meanwhile is at most 1/128 of what the segment adds up.
void order_exchanges(const Program& program, const Target& target, std::vector<Instruction>& code);

}  // namespace galley
