// Which steps of a segment can be one launch: by what they use, by the kernels that there are, and by the bytes that live at the time.
#pragma once

#include <string>
#include <vector>

#include "host/passes/fuse.hpp"
#include "host/plan/lifetime.hpp"

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

class SegmentFuser {
 public:
  /// `apart` is `outline` with outputs in the place of inputs.
  SegmentFuser(Fuser& fuser, Kernels& kernels, const Outline& outline, const Outline& apart, const StepsOf& source, size_t segment,
               Room& room);
  /// The segment's launches in order. All steps are in one.
  Result<std::vector<Launch>> run();

 private:
  struct Use {
    uint32_t step;
    TensorId tensor;
    int64_t begin, end;
    bool reads, writes;
    bool conflicts(const Use& with) const {
      return tensor == with.tensor && (writes || with.writes) && begin < with.end && with.begin < end;
    }
    bool same_range(const Use& with) const { return tensor == with.tensor && begin == with.begin && end == with.end; }
  };
  void find_uses();
  const Instruction& of(uint32_t step) const { return *source_.instructions[step]; }
  std::span<const Use> uses_of(uint32_t step) const { return {uses_.data() + first_use_[step], uses_.data() + first_use_[step + 1]}; }
  bool open(uint32_t step) const;
  /// Whether a step can stand where the launch of `members` does, as one more of its group, or as the next link of its chain.
  bool joins(uint32_t step, const std::vector<uint32_t>& members, bool chain) const;
  Result<bool> try_chain(uint32_t step, const std::vector<std::string>& links);
  Status find_groups();
  void mark(Launch& launch) const;
  /// Whether the launch has room without its workspace; with `take`, it gets it, and its workspace.
  bool has_room(const Launch& launch, bool take);
  Result<bool> accept(Launch launch);

  Fuser& fuser_;
  Kernels& kernels_;
  const Outline& outline_;
  const Outline& apart_;
  const Outline::Code& code_;
  const StepsOf& source_;
  size_t segment_;
  Room& room_;
  std::vector<Use> uses_;  ///< by step
  std::vector<size_t> first_use_;
  std::vector<std::vector<uint32_t>> readers_;  ///< by tensor: indices into uses_
  std::vector<std::vector<uint32_t>> writers_;
  std::vector<uint32_t> region_;  ///< of each step: nothing moves from one to another
  std::vector<uint32_t> slot_;    ///< of each step: where it stands
  std::vector<int64_t> launch_;   ///< of each step: its launch; -1: none yet
  std::vector<Launch> launches_;
};

}  // namespace galley
