#include "host/plan/sums.hpp"

namespace galley {

std::vector<WeightSum> weight_sums(const Program& program, SegmentKind kind) {
  std::vector<WeightSum> out;
  if (kind == SegmentKind::Frozen)
    for (const TensorId weight : program.frozen) out.push_back({weight, {}, {}});
  else
    for (const Trained& trained : program.trained) out.push_back({trained.parameter, {}, {}});
  auto row = static_cast<int64_t>(kind == SegmentKind::Frozen ? 0 : program.frozen.size());
  for (WeightSum& s : out) {
    const ProgramTensor& tensor = program.tensors[static_cast<size_t>(s.weight)];
    s.bytes.tensor = s.weight;
    s.bytes.dtype = GALLEY_U8;
    s.bytes.shape = {tensor.bytes};
    s.sum.offset = row++ * Program::sum_bytes;
    s.sum.dtype = GALLEY_I32;
    s.sum.shape = {2};
    s.sum.access = s.sum.later = GALLEY_WRITE;
    if (tensor.memory == 0) s.sum.tensor = program.sums;
  }
  return out;
}

}  // namespace galley
