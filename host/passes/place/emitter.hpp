// Items become instructions of one segment: each with what brings its inputs where they are needed, and takes its outputs back.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "host/passes/place/accumulators.hpp"
#include "host/passes/place/format_inputs.hpp"
#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"
#include "host/passes/place/staging.hpp"

namespace galley {

class Emitter {
 public:
  Emitter(Compilation& c, const Homes& homes, SegmentKind kind);
  Emitter(const Emitter&) = delete;  // its parts refer to each other

  SegmentCode& code() { return code_; }
  Staging& staging() { return staging_; }

  /// Copies of placed parameters in another dtype (what nodes that compute in 16 bit read) are made anew where the last of `items` that
  /// writes the parameter has its numbers, so that they are brought once for both. These copies.
  std::set<galley_tensor> copy_after(const std::vector<Item>& items);
  /// `t` outlives the segment: it is read after the program has run. To be said before its node is emitted.
  void keep(galley_tensor t) { outlives_.insert(t); }
  Status item(const Item& item);
  /// `begins`: where the instructions of each item begin.
  Status items(const std::vector<Item>& items, std::vector<uint32_t>* begins = nullptr);
  /// The numbers of a tensor that are plain, or of a transient of this segment.
  Operand operand(galley_tensor t) { return operand({t, 0, -1}, nullptr); }
  /// The segment's transients, by graph tensor.
  std::vector<TensorId> transients() const;

 private:
  Homes::Place place(galley_tensor t);
  Operand operand(const Ref& ref, const galley_operand_rule* rule);
  Status inputs(const Item& item, const TensorPiece& piece, Instruction* instruction, std::vector<StagedInput>* staged);
  Status outputs(const Item& item, const TensorPiece& piece, Instruction* instruction);
  /// Where a node writes a gradient that lies where nothing computes.
  Result<Operand> gradient_here(galley_tensor t, const TensorPiece& piece, bool adds);
  Status put_gradient_back(galley_tensor t, const TensorPiece& piece, const Operand& here);
  /// The copies of what a node has written in place.
  Status make_copies(const GraphNode& node, const StagedInput& written, const Operand& numbers);
  /// `instruction` has all but its operands.
  Status emit(const Item& item, const TensorPiece& piece, Instruction instruction);

  Compilation& c_;
  const Homes& homes_;
  SegmentCode code_;
  Staging staging_;
  std::optional<Accumulators> accumulators_;  ///< only micro adds up gradients over several nodes
  std::map<galley_tensor, TensorId> transients_;
  std::set<galley_tensor> outlives_;
  std::map<std::pair<galley_node, galley_tensor>, std::vector<galley_tensor>> copies_;  ///< by node and the parameter that it writes
};

}  // namespace galley
