// Turns the items of one segment into instructions, together with those that bring an item's inputs and take its outputs back.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "host/passes/place/accumulators.hpp"
#include "host/passes/place/format_inputs.hpp"
#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"
#include "host/passes/place/squares.hpp"
#include "host/passes/place/staging.hpp"

namespace galley {

class Emitter {
 public:
  Emitter(Compilation& c, const Homes& homes, SegmentKind kind);
  Emitter(const Emitter&) = delete;  // its parts refer to each other

  SegmentCode& code() { return code_; }
  Staging& staging() { return staging_; }

  /// Plans to make 16-bit copies of placed parameters right after the last of `items` that writes the parameter: its numbers are then where
  /// kernels compute, and are brought once for both. Returns these copies.
  std::set<galley_tensor> copy_after(const std::vector<Item>& items);
  /// Keeps a tensor that is read after the segment has run. Must be called before its node is emitted.
  void keep(galley_tensor t, Life life = Life::Run) { outlives_[t] = life; }
  Status item(const Item& item);
  /// `begins` gets the position at which the instructions of each item begin.
  Status items(const std::vector<Item>& items, std::vector<uint32_t>* begins = nullptr);
  /// Returns all of a tensor whose numbers are plain, or of a transient of this segment.
  Operand operand(galley_tensor t) { return operand({t, 0, -1}, nullptr); }
  /// Adds the loss of a lane to that of the window. In micro, where there are lanes, after all nodes.
  Status add_loss() { return accumulators_->add_scalar(c_.lane_loss, loss_); }
  /// Returns the segment's transients, by graph tensor.
  std::vector<TensorId> transients() const;

 private:
  Homes::Place place(galley_tensor t);
  Operand operand(const Ref& ref, const galley_operand_rule* rule);
  /// Returns the piece of an operand: of one that is divided, where the node computes with the own part, the node's, whatever its rule.
  TensorPiece piece_of(const Item& item, const TensorPiece& piece, const Ref& ref, const galley_operand_rule* rule) const;
  Result<std::vector<Operand>> inputs(const Item& item, const TensorPiece& piece, std::vector<StagedInput>* staged);
  Result<std::vector<Operand>> outputs(const Item& item, const TensorPiece& piece);
  /// Emits the copies of a parameter that a node has written in place.
  Status make_copies(const GraphNode& node, const StagedInput& written, const Operand& numbers);
  /// Emits an item, or a piece of it, which has a share of its cost.
  Status emit(const Item& item, const TensorPiece& piece, const galley_cost& cost, double share);

  Compilation& c_;
  const Homes& homes_;
  SegmentCode code_;
  Staging staging_;
  std::optional<Accumulators> accumulators_;  ///< only micro adds up over several nodes
  Squares squares_;
  galley_tensor loss_ = 0;  ///< of the window, if nodes of this segment add to that of a lane instead
  std::map<galley_tensor, TensorId> transients_;
  std::map<galley_tensor, Life> outlives_;
  std::map<std::pair<galley_node, galley_tensor>, std::vector<galley_tensor>> copies_;  ///< by node and the parameter that it writes
};

}  // namespace galley
