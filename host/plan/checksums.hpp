// Where the checksums of weights lie: of frozen ones after segment Frozen, of trained ones after Trained.
#pragma once

#include <vector>

#include "host/plan/program.hpp"

namespace galley {

struct WeightChecksum {
  TensorId weight = no_tensor;
  Operand bytes;     ///< the whole weight, as U8
  Operand checksum;  ///< its row of Program::checksums; absent where the weight lies where nothing computes: the host makes that one
};

/// One for each tensor of Program::frozen (SegmentKind::Frozen) or Program::trained (SegmentKind::Trained), in its order.
std::vector<WeightChecksum> weight_checksums(const Program& program, SegmentKind kind);

}  // namespace galley
