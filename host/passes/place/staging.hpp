// Tensors that lie in a format, or in a memory class where nothing computes: brought where a node needs them, and back.
#pragma once

#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"

namespace galley {

class Staging {
 public:
  Staging(Compilation& c, const Homes& homes, SegmentCode& code) : c_(c), homes_(homes), code_(code) {}

  /// For which of the two an operand is brought: only what is read has to hold the home's bytes.
  enum class For : uint8_t { Reading, Writing };
  /// A tensor's components where kernels compute: their homes, or copies in memory of this segment.
  Result<std::vector<Operand>> bring(galley_tensor t, const TensorPiece& piece, For what);
  /// An operand that holds the tensor's numbers in its own dtype, by its components where kernels compute.
  Result<Operand> numbers(galley_tensor t, const TensorPiece& piece, const std::vector<Operand>& components, For what);
  /// Both, of a whole tensor that is read.
  Result<Operand> read(galley_tensor t);
  /// Puts numbers into components that lie where kernels compute.
  Status pack(galley_tensor t, const TensorPiece& piece, const Operand& numbers, const std::vector<Operand>& components);
  /// Copies components back to where they are at home.
  Status put_back(galley_tensor t, const TensorPiece& piece, const std::vector<Operand>& components);

 private:
  /// The op of a tensor's format that packs or unpacks it.
  Status format_op(const GraphTensor& t, const char* op_name, const std::string& name, std::vector<Operand> from, std::vector<Operand> to,
                   AttrList attrs);

  Compilation& c_;
  const Homes& homes_;
  SegmentCode& code_;
};

}  // namespace galley
