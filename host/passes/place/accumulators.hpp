// Adds up over a window what its micro-batches make: gradients and the loss.
//
// Where nobody says otherwise, nodes add to a gradient's home, micro-batch after micro-batch. Otherwise they write elsewhere, and
// instructions after the last node of a micro-batch bring their sum home:
//   · a gradient that lies where nothing computes is added up where kernels compute: the sum so far is copied there before the first node
//     that writes it, and copied back after the last.
//   · a process with several lanes adds each lane up by itself, and the lane's sum to the home at its end.
//   · of a gradient that is divided between processes, the home has a part: a lane is added up by itself, too.
// The last micro-batch of a lane exchanges the sums of lanes with other processes. Where groups of neighbours divide tensors, each group makes
// its sum first, and the groups add theirs.
#pragma once

#include <map>

#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"

namespace galley {

class Accumulators {
 public:
  /// `code` is that of micro; its orders say how often each of these gradients is written.
  Accumulators(Compilation& c, const Homes& homes, SegmentCode& code);
  /// Returns whether instructions follow the nodes that write this gradient.
  bool has(galley_tensor gradient) const { return totals_.contains(gradient); }
  /// Returns the operand to which a node writes the gradient.
  Operand here(galley_tensor gradient);
  /// Must be called after each node that has written the gradient.
  Status written(galley_tensor gradient);
  /// Adds a scalar of this lane to that of the window. Must be called after all nodes that write the lane's.
  Status add_scalar(galley_tensor of_lane, galley_tensor of_window);

 private:
  struct Total {
    size_t left = 0;  ///< how often the gradient is still to be written
    bool begun = false;
    Operand here;  ///< where nodes write
    Operand lane;  ///< the lane's sum between micro-batches; absent: it is `here`, or the home
  };
  /// Returns whether a lane of a gradient is not added up in its home.
  bool adds_apart(galley_tensor t) const { return several_ || homes_.cut(t); }
  /// Adds a lane's sums of all processes, or the own part of them, to what is there from lanes before.
  Status add_lanes(const std::string& name, galley_tensor of, const Operand& lane, Operand to);
  Status add_groups(const std::string& name, galley_tensor of, const Cut& cut, const Operand& lane, const Operand& to);

  Compilation& c_;
  const Homes& homes_;
  SegmentCode& code_;
  const int64_t in_a_lane_;
  const bool several_;  ///< this process has several lanes
  std::map<galley_tensor, Total> totals_;
};

}  // namespace galley
