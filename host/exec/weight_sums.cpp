#include "host/exec/weight_sums.hpp"

#include "galley/checksum.h"

namespace galley {

Status WeightSums::run(SegmentKind kind, size_t first, std::span<uint64_t> out) const {
  if (out.empty() || program_.segment(kind).code.empty()) return ok();
  TRY_STATUS(executor_.run(kind));
  return executor_.machine().get(program_.sums, static_cast<int64_t>(first) * Program::sum_bytes, std::as_writable_bytes(out));
}

Status WeightSums::complete(TensorId weight, uint64_t* sum) const {
  const ProgramTensor& tensor = program_.tensors[static_cast<size_t>(weight)];
  if (tensor.memory == 0) return ok();
  *sum = galley_checksum_begin(tensor.bytes);
  int64_t done = 0;  // pieces are whole words but for the last
  return executor_.machine().show(weight, [&](std::span<const std::byte> piece) -> Status {
    *sum += galley_checksum_part(piece.data(), static_cast<int64_t>(piece.size()), done / 8);
    done += static_cast<int64_t>(piece.size());
    return ok();
  });
}

Status WeightSums::frozen(std::span<uint64_t> out) const {
  TRY_STATUS(run(SegmentKind::Frozen, 0, out));
  for (size_t i = 0; i < out.size(); ++i) TRY_STATUS(complete(program_.frozen[i], &out[i]));
  return ok();
}

Status WeightSums::trained(std::span<uint64_t> out) const {
  TRY_STATUS(run(SegmentKind::Trained, program_.frozen.size(), out));
  for (size_t i = 0; i < out.size(); ++i) TRY_STATUS(complete(program_.trained[i].parameter, &out[i]));
  return ok();
}

}  // namespace galley
