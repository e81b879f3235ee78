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

/// Returns how a tensor's bytes lie in the whole tensor of which it may be a part.
inline Runs byte_runs(const ProgramTensor& t) {
  const int64_t bytes = galley_dtype_bytes(t.dtype);
  return {t.runs.first * bytes, t.runs.run * bytes, t.runs.step * bytes};
}
/// Returns the bytes of all of a tensor of which there may be a part.
inline int64_t whole_bytes(const ProgramTensor& t) { return t.is_part() ? elements(t.whole) * galley_dtype_bytes(t.dtype) : t.bytes; }

/// Returns one for each tensor of Program::frozen (SegmentKind::Frozen) or Program::trained (SegmentKind::Trained), in its order.
std::vector<WeightChecksum> weight_checksums(const Program& program, SegmentKind kind);

}  // namespace galley
