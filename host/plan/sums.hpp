// Where the checksums of weights lie: of frozen ones after segment Frozen, of trained ones after Trained.
#pragma once

#include <vector>

#include "host/plan/program.hpp"

namespace galley {

struct WeightSum {
  TensorId weight = no_tensor;
  Operand bytes;  ///< the whole weight, U8
  Operand sum;    ///< its row of Program::sums; absent where the weight lies where nothing computes, so that the host makes it
};

/// As Program::frozen (SegmentKind::Frozen) or Program::trained (SegmentKind::Trained).
std::vector<WeightSum> weight_sums(const Program& program, SegmentKind kind);

}  // namespace galley
