// A program as text, for eyes and for golden tests.
#pragma once

#include <string>

#include "host/plan/plan.hpp"

namespace galley {

/// One line an instruction: its index, what it does, its operands with access, bytes of their class's arena, dtype and shape, its
/// workspace. Nothing depends on addresses or on the order of a hash. Operands stand as `access name@class+offset dtype(shape)`; access is
/// r, w, rw (in place), a (adds), and w/a where a later micro-batch adds to what the first one writes.
std::string describe(const Program& program, const Plan& plan, SegmentKind kind);

/// The same of a program that has no plan yet: without offsets.
std::string describe(const Program& program, SegmentKind kind);

/// One line a tensor, in order of class, offset and first moment: name, owner, life, range of bytes, range of moments, strategy.
std::string describe_tensors(const Program& program, const Plan& plan);

}  // namespace galley
