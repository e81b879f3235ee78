// The attributes of exchanges between processes of a run, and the exchanges of what the pass `shard` has divided.
#pragma once

#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"

namespace galley {

/// Returns the attributes of a sum over all groups of processes that compute the same micro-batches.
AttrList sum_attrs(const Program& program);
/// Returns those of a sum over the processes of a group.
AttrList sum_of_neighbours(const Program& program);
/// Returns those of a sum over the processes that have the parts of a tensor among them.
AttrList sum_of_sharers(const Program& program);
/// Returns those of a sum over the processes that have the same part, each of another group.
AttrList sum_of_groups(const Program& program);
/// Returns those of an exchange of the parts of a component.
AttrList parts_attrs(const Program& program, const Cut& cut, const Component& described);

/// Appends what turns columns into rows, which are together. `matrix` has numbers of `t`.
Result<Operand> turned(const Compilation& c, SegmentCode& code, const GraphTensor& t, const Operand& matrix);
/// Appends the exchange that makes the whole of a component of the parts that all processes have of it. `whole` is where it comes.
Status gather(Compilation& c, SegmentCode& code, const Cut& cut, const Component& described, const Operand& part, const Operand& whole);
/// Appends the exchange after which each process has all of what lies at `whole`, of which it had the own part.
Status gather_here(Compilation& c, SegmentCode& code, const Cut& cut, const Component& described, const Operand& whole);
/// Returns the own part of a component that is whole: none where the process has none of it, or it is not divided.
Operand own_part(const Cut& cut, const Component& described, const Operand& whole);

}  // namespace galley
