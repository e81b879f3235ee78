// Counts the bytes that live at each moment of a program, and tells what fits beside them without a higher peak. `fuse` uses it.
#pragma once

#include <vector>

#include "host/plan/lifetime.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// The live bytes at each moment, by memory class.
class Room {
 public:
  /// In `outline`, outputs have taken over inputs already (share()).
  Room(const Outline& outline, const Target& target);
  /// Returns the most bytes that live at one time, by memory class.
  const std::vector<int64_t>& least() const { return least_; }
  int32_t begin_of(size_t segment) const { return timeline_.begin[segment]; }
  /// Returns the bytes of a tensor, rounded up to the alignment, if its life begins at this moment, else 0.
  int64_t born(TensorId tensor, int32_t moment) const;
  uint32_t memory_of(TensorId tensor) const { return outline_.tensors[static_cast<size_t>(tensor)].memory; }
  /// Returns whether so many more bytes can live from one moment to another, both included.
  bool fits(uint32_t memory, int32_t first, int32_t last, int64_t bytes) const;
  void take(uint32_t memory, int32_t first, int32_t last, int64_t bytes);
  /// Lets the tensor's life begin at an earlier moment.
  void bear(TensorId tensor, int32_t moment) { lives_[static_cast<size_t>(tensor)].first = moment; }
  int64_t rounded(int64_t bytes, uint32_t memory) const;

 private:
  const Outline& outline_;
  const Target& target_;
  Timeline timeline_;
  std::vector<Lifetime> lives_;
  std::vector<std::vector<int64_t>> live_;  ///< by memory class and moment
  std::vector<int64_t> least_;
};

}  // namespace galley
