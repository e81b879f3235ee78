// The bytes that live at each moment of a program, and what may live beside them without a higher peak.
#pragma once

#include <vector>

#include "host/plan/lifetime.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// How many bytes live at each moment, and how many may.
class Room {
 public:
  /// `outline`: with outputs in the place of inputs.
  Room(const Outline& outline, const Target& target);
  /// By memory class: the most bytes that live at one time.
  const std::vector<int64_t>& least() const { return least_; }
  int32_t begin_of(size_t segment) const { return timeline_.begin[segment]; }
  /// Bytes of a tensor that some moment is the first of, rounded as they will lie; 0 if its life begins at another one.
  int64_t born(TensorId tensor, int32_t moment) const;
  uint32_t memory_of(TensorId tensor) const { return outline_.tensors[static_cast<size_t>(tensor)].memory; }
  /// Whether so many bytes more can live from one moment to another, both included.
  bool fits(uint32_t memory, int32_t first, int32_t last, int64_t bytes) const;
  void take(uint32_t memory, int32_t first, int32_t last, int64_t bytes);
  /// The tensor's life begins earlier now.
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
