// Decides which inputs of a node stay in their formats. A kernel may read an operand in its format; otherwise its numbers are unpacked.
#pragma once

#include "host/passes/place/homes.hpp"

namespace galley {

struct StagedInput {
  size_t input;
  galley_tensor tensor;
  bool updated;  ///< the node writes it in place
  TensorPiece piece;
  std::vector<Operand> components;  ///< where kernels compute
};

/// Chooses the inputs that stay in their formats: of the sets for which there is a kernel, the one with the most numbers. Their components
/// become further inputs of the instruction. Returns for each staged input whether it stays.
Result<std::vector<bool>> keep_formats(Compilation& c, const Homes& homes, const std::vector<StagedInput>& staged,
                                       Instruction* instruction);

}  // namespace galley
