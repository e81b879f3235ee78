// Makes a micro-batch in which backward recomputes (clones), copies back or unpacks the saved tensors that were not kept.
#pragma once

#include <span>
#include <vector>

#include "host/passes/compilation.hpp"
#include "host/plan/outline.hpp"

namespace galley {

/// Micro with clones and copies, as references into the instructions of micro without them.
struct Recomputed {
  struct Tensor {
    TensorId like;
    uint32_t memory;
    const ProgramTensor* own = nullptr;  ///< if not null, what it is like in the place of `like`
  };
  struct Origin {
    /// The instruction that the entry is, or that it clones: of micro without clones, or of a compression, over its tensors. Null: the
    /// entry copies, or orders queues.
    const Instruction* code = nullptr;
    bool again = false;    ///< a clone
    bool rounded = false;  ///< a clone that depends on a compressed tensor
  };
  Outline::Code code;
  std::vector<Origin> origins;  ///< of each entry
  std::vector<Tensor> tensors;  ///< element k is tensor N + k, if there are N tensors without clones
  std::vector<TensorId> saved;  ///< tensors that backward reads: left by forward, brought back, or made again
};

/// Tells what micro, as `place` and `bind` have left it, becomes for any choices.
class Recomputer {
 public:
  explicit Recomputer(const Compilation& c);
  /// `choices` has one choice for each tensor of c.saved.
  Recomputed apply(std::span<const uint32_t> choices) const;

 private:
  class Pass;
  struct Operands {
    std::vector<TensorId> inputs, outputs;  ///< transients only
  };
  const Compilation& c_;
  Outline::Code micro_;
  std::vector<Operands> items_;
  std::vector<int64_t> blocks_;    ///< the block of each item
  std::vector<int32_t> producer_;  ///< by tensor: the forward item that makes it, -1: none
  std::vector<bool> kept_;         ///< by tensor: an item that runs once makes it, so that it is kept whatever strategies choose
  std::vector<bool> temporary_;    ///< by tensor: only one instruction or item uses it (workspace, staged copies)
  uint32_t events_ = 0;            ///< how many are in use
};

}  // namespace galley
