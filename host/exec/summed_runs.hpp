// The bytes of a tensor as they lie in the whole one of which it may be a part, with their checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "galley/checksum.h"
#include "host/base/result.hpp"
#include "host/plan/checksums.hpp"

namespace galley {

/// The bytes of a tensor in order, with what they add to its checksum.
class SummedRuns {
 public:
  explicit SummedRuns(const ProgramTensor& tensor) : runs_(byte_runs(tensor)) {}
  /// Calls use(at, bytes) for the bytes of a piece that lie together in the whole tensor, from its byte `at` on; then counts them. Pieces
  /// are whole words but for the tensor's last.
  template <class Byte, class Use>
  Status each(std::span<Byte> piece, const Use& use) {
    while (!piece.empty()) {
      const int64_t at = runs_.at(done_), together = runs_.together(done_, static_cast<int64_t>(piece.size()));
      const std::span<Byte> bytes = piece.first(static_cast<size_t>(together));
      TRY_STATUS(use(at, bytes));
      sum_ += galley_checksum_part(bytes.data(), together, at / 8);
      done_ += together;
      piece = piece.subspan(bytes.size());
    }
    return ok();
  }
  uint64_t sum() const { return sum_; }

 private:
  const Runs runs_;
  int64_t done_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace galley
