// A micro-batch in which backward recomputes or brings back what it does not find.
#pragma once

#include <span>
#include <vector>

#include "host/passes/compilation.hpp"
#include "host/plan/outline.hpp"

namespace galley {

/// Micro with clones and copies, as references into micro without them.
struct Recomputed {
  static constexpr uint32_t added = UINT32_MAX;
  struct Tensor {
    TensorId like;
    uint32_t memory;
  };
  Outline::Code code;
  std::vector<uint32_t>
      from;                 ///< of each entry: the instruction that it is, or that it clones; `added`: it copies, or keeps queues in order
  std::vector<bool> again;  ///< of each entry: it is a clone
  std::vector<Tensor> tensors;  ///< entry k is tensor N + k, where N tensors are there without clones
  std::vector<TensorId> saved;  ///< what backward reads of forward, and what lies elsewhere or is made again for it
};

/// Knows micro as `place` and `bind` have left it; says what it becomes for any choices.
class Recomputer {
 public:
  explicit Recomputer(const Compilation& c);
  /// One choice a tensor of c.saved.
  Recomputed apply(std::span<const uint32_t> choices) const;

 private:
  class Pass;
  struct Operands {
    std::vector<TensorId> inputs, outputs;  ///< transients only
  };
  const Compilation& c_;
  Outline::Code micro_;
  std::vector<Operands> items_;
  std::vector<int64_t> blocks_;    ///< of each item
  std::vector<int32_t> producer_;  ///< by tensor: the forward item that makes it, -1: none
  std::vector<bool> temporary_;    ///< by tensor: workspace and what is staged, of one instruction or item only
  uint32_t events_ = 0;            ///< so many are in use
};

}  // namespace galley
