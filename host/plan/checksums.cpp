#include "host/plan/checksums.hpp"

namespace galley {

std::vector<WeightChecksum> weight_checksums(const Program& program, SegmentKind kind) {
  std::vector<WeightChecksum> out;
  if (kind == SegmentKind::Frozen)
    for (const TensorId weight : program.frozen) out.push_back({weight, {}, {}});
  else
    for (const Trained& trained : program.trained) out.push_back({trained.parameter, {}, {}});
  auto row = static_cast<int64_t>(kind == SegmentKind::Frozen ? 0 : program.frozen.size());
  for (WeightChecksum& s : out) {
    const ProgramTensor& tensor = program.tensors[static_cast<size_t>(s.weight)];
    s.bytes.tensor = s.weight;
    s.bytes.dtype = GALLEY_U8;
    s.bytes.shape = {tensor.bytes};
    s.checksum.offset = row++ * Program::checksum_bytes;
    s.checksum.dtype = GALLEY_I32;
    s.checksum.shape = {2};
    s.checksum.access = s.checksum.later = GALLEY_WRITE;
    if (tensor.memory == 0) s.checksum.tensor = program.checksums;
  }
  return out;
}

}  // namespace galley
