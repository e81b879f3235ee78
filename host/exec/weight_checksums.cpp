#include "host/exec/weight_checksums.hpp"

#include "galley/checksum.h"

namespace galley {
namespace {

/// The checksum of a weight, which the host makes piece by piece.
Result<uint64_t> checksum_of_weight(Machine& machine, const Operand& weight) {
  uint64_t checksum = galley_checksum_begin(weight.bytes());
  int64_t done = 0;  // pieces are whole words but for the last
  TRY_STATUS(machine.show(weight.tensor, [&](std::span<const std::byte> piece) -> Status {
    checksum += galley_checksum_part(piece.data(), static_cast<int64_t>(piece.size()), done / 8);
    done += static_cast<int64_t>(piece.size());
    return ok();
  }));
  return checksum;
}

}  // namespace

Status WeightChecksums::take(std::span<uint64_t> out) const {
  if (checksums_.empty()) return ok();
  if (const Program& program = executor_.program(); !program.segment(kind_).code.empty()) {
    TRY_STATUS(executor_.run(kind_));
    TRY_STATUS(executor_.machine().get(program.checksums, checksums_.front().checksum.offset, std::as_writable_bytes(out)));
  }
  for (size_t i = 0; i < checksums_.size(); ++i)
    if (!checksums_[i].checksum.present()) out[i] = TRY(checksum_of_weight(executor_.machine(), checksums_[i].bytes));
  return ok();
}

}  // namespace galley
