// Tells where the checksums of weights lie: those of frozen weights after segment Frozen, those of trained weights after Trained.
#pragma once

#include <vector>

#include "host/plan/program.hpp"

namespace galley {

struct WeightChecksum {
  TensorId weight = no_tensor;
  Operand bytes;     ///< the whole weight, as U8
  Operand checksum;  ///< its row of Program::checksums; absent if the weight lies where nothing computes: the host makes that one
};

/// Returns one for each tensor of Program::frozen (SegmentKind::Frozen) or Program::trained (SegmentKind::Trained), in its order.
std::vector<WeightChecksum> weight_checksums(const Program& program, SegmentKind kind);

}  // namespace galley
