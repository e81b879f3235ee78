#include "host/exec/weight_checksums.hpp"

#include "galley/checksum.h"
#include "host/exec/summed_runs.hpp"

namespace galley {
namespace {

/// The checksum of a weight, or what a part of one adds to it, which the host makes piece by piece.
Result<uint64_t> checksum_of_weight(Machine& machine, const ProgramTensor& weight, TensorId id) {
  const uint64_t begin = weight.is_part() ? 0 : galley_checksum_begin(weight.bytes);
  SummedRuns summed(weight);
  TRY_STATUS(machine.show(
      id, [&](std::span<const std::byte> piece) { return summed.each(piece, [](int64_t, std::span<const std::byte>) { return ok(); }); }));
  return begin + summed.sum();
}

}  // namespace

Status WeightChecksums::take_own(std::span<uint64_t> out) const {
  const Program& program = executor_.program();
  if (!program.segment(kind_).code.empty()) {
    TRY_STATUS(executor_.run(kind_));
    TRY_STATUS(executor_.machine().get(program.checksums, checksums_.front().checksum.offset, std::as_writable_bytes(out)));
  }
  for (size_t i = 0; i < checksums_.size(); ++i) {
    const TensorId weight = checksums_[i].weight;
    if (!checksums_[i].checksum.present())
      out[i] = TRY(checksum_of_weight(executor_.machine(), program.tensors[static_cast<size_t>(weight)], weight));
  }
  return ok();
}

Status WeightChecksums::take(std::span<uint64_t> out) const {
  if (checksums_.empty()) return ok();
  Status own = take_own(out);
  if (parts_.empty()) return own;
  TRY_STATUS(executor_.together().first_error(std::move(own)));
  std::vector<uint64_t> sums;
  const auto weight = [&](size_t i) -> const ProgramTensor& {
    return executor_.program().tensors[static_cast<size_t>(checksums_[i].weight)];
  };
  for (const size_t i : parts_) sums.push_back(executor_.program().counts(weight(i)) ? out[i] : 0);
  TRY_STATUS(executor_.together().add_up(sums));
  for (size_t k = 0; k < parts_.size(); ++k) out[parts_[k]] = sums[k] + galley_checksum_begin(whole_bytes(weight(parts_[k])));
  return ok();
}

}  // namespace galley
