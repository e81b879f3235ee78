// The sums of squares of gradients of which each process has a part: each process adds up the squares of its blocks of numbers, all give
// each other what they have, and each adds the blocks of all in their order. The sum has the bytes of that of a whole gradient. Of what a
// strategy has divided, the sums of the parts are added up.
#pragma once

#include <vector>

#include "host/passes/place/homes.hpp"
#include "host/passes/place/staging.hpp"

namespace galley {

class Squares {
 public:
  /// `code` is that of update.
  Squares(Compilation& c, const Homes& homes, SegmentCode& code, Staging& staging) : c_(c), homes_(homes), code_(code), staging_(staging) {}
  /// Returns whether a node makes the sum of squares of a gradient that is divided.
  bool takes(const GraphNode& node) const;
  /// Appends, in place of such a node, what makes the squares of the own blocks.
  Status add(const GraphNode& node);
  /// Appends what makes the sums of those that were added. Must be called before the first reader of one.
  Status finish();

 private:
  struct Asked {
    galley_tensor gradient = 0, sum = 0;
    int64_t block = 0, blocks = 0;  ///< its first among those of all gradients, and how many it has
  };
  Operand blocks(int64_t first, int64_t count) const;
  bool is_neighbours(const GraphNode& node) const;
  Status add_neighbours(const GraphNode& node);
  Status finish_neighbours();

  Compilation& c_;
  const Homes& homes_;
  SegmentCode& code_;
  Staging& staging_;
  TensorId all_ = no_tensor;  ///< the blocks of all gradients
  std::vector<Asked> asked_;
  TensorId of_parts_ = no_tensor;      ///< a number for each gradient of a part that neighbours share
  std::vector<galley_tensor> totals_;  ///< what these become
};

}  // namespace galley
