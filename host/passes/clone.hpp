// A micro-batch in which backward makes again what it does not find.
#pragma once

#include <span>
#include <vector>

#include "host/passes/passes.hpp"
#include "host/plan/outline.hpp"

namespace galley {

/// Micro with clones, as references into micro without them.
struct Recomputed {
  Outline::Code code;
  std::vector<uint32_t> from;    ///< of each step: the instruction that it is, or that it clones
  std::vector<bool> again;       ///< of each step: it is a clone
  std::vector<TensorId> copies;  ///< tensor N + k is like tensor copies[k], where N tensors are there without clones
  std::vector<TensorId> read;    ///< clones that backward reads
};

/// Knows micro as `place` and `bind` have left it; says what it becomes for any choices.
class Recomputer {
 public:
  explicit Recomputer(const Compilation& c);
  /// One choice a tensor of c.saved; what is not GALLEY_KEEP is made again.
  Recomputed apply(std::span<const uint32_t> choices) const;

 private:
  class Pass;
  struct Operands {
    std::vector<TensorId> inputs, outputs;  ///< transients only
  };
  const Compilation& c_;
  Outline::Code micro_;
  std::vector<Operands> items_;
  std::vector<int32_t> producer_;  ///< by tensor: the forward item that makes it, -1: none
  std::vector<bool> temporary_;    ///< by tensor: workspace and what is staged, of one instruction or item only
  uint32_t events_ = 0;            ///< so many are in use
};

}  // namespace galley
