#include "host/exec/weight_sums.hpp"

#include "galley/checksum.h"

namespace galley {
namespace {

/// By the host.
Result<uint64_t> sum_of(Machine& machine, const Operand& weight) {
  uint64_t sum = galley_checksum_begin(weight.bytes());
  int64_t done = 0;  // pieces are whole words but for the last
  TRY_STATUS(machine.show(weight.tensor, [&](std::span<const std::byte> piece) -> Status {
    sum += galley_checksum_part(piece.data(), static_cast<int64_t>(piece.size()), done / 8);
    done += static_cast<int64_t>(piece.size());
    return ok();
  }));
  return sum;
}

}  // namespace

Status WeightSums::take(std::span<uint64_t> out) const {
  if (sums_.empty()) return ok();
  if (const Program& program = executor_.program(); !program.segment(kind_).code.empty()) {
    TRY_STATUS(executor_.run(kind_));
    TRY_STATUS(executor_.machine().get(program.sums, sums_.front().sum.offset, std::as_writable_bytes(out)));
  }
  for (size_t i = 0; i < sums_.size(); ++i)
    if (!sums_[i].sum.present()) out[i] = TRY(sum_of(executor_.machine(), sums_[i].bytes));
  return ok();
}

}  // namespace galley
