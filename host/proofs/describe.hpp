// Makes the text of a program, for people and for golden tests.
#pragma once

#include <string>

#include "host/plan/plan.hpp"

namespace galley {

/// Returns one line for each instruction: its index, what it does, its operands, its workspace. Nothing depends on addresses or on the
/// order of a hash. Operands are printed as `access name@class+offset dtype(shape)`. The access is r, w, rw (in place), a (adds), or w/a if
/// later micro-batches add to what the first one writes.
std::string describe(const Program& program, const Plan& plan, SegmentKind kind);

/// Does the same for a program that has no plan yet, without offsets.
std::string describe(const Program& program, SegmentKind kind);

/// Returns one line for each tensor, in order of class, offset and first moment: range of bytes, range of moments, name, owner, life,
/// strategy.
std::string describe_tensors(const Program& program, const Plan& plan);

}  // namespace galley
