// Brings tensors that lie in a format, or where nothing computes, to where a node needs them, and puts them back.
#pragma once

#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"

namespace galley {

class Staging {
 public:
  Staging(Compilation& c, const Homes& homes, SegmentCode& code) : c_(c), homes_(homes), code_(code) {}

  /// Says why an operand is brought: only for reading does it have to hold the home's bytes.
  enum class For : uint8_t { Reading, Writing };
  /// Returns a tensor's components where kernels compute: their homes, or copies in memory of this segment. Of a tensor that is divided
  /// between processes, all of it is brought from all of them; of those that a view of a component does not show, nothing.
  Result<std::vector<Operand>> bring(galley_tensor t, const TensorPiece& piece, For what);
  /// Returns an operand with the tensor's numbers in its own dtype, made of components that lie where kernels compute.
  Result<Operand> numbers(galley_tensor t, const TensorPiece& piece, const std::vector<Operand>& components, For what);
  /// Does both, for a whole tensor that is read.
  Result<Operand> read(galley_tensor t);
  /// Packs numbers into components that lie where kernels compute.
  Status pack(galley_tensor t, const TensorPiece& piece, const Operand& numbers, const std::vector<Operand>& components);
  /// Copies components back to their homes: of a tensor that is divided and brought whole, the own part.
  Status put_back(galley_tensor t, const TensorPiece& piece, const std::vector<Operand>& components);

 private:
  /// Returns all of a divided tensor's components.
  Result<std::vector<Operand>> whole(galley_tensor t, const Cut& cut, For what);
  /// Appends the op of a tensor's format that packs or unpacks it.
  Status format_op(const GraphTensor& t, const char* op_name, const std::string& name, std::vector<Operand> from, std::vector<Operand> to,
                   AttrList attrs);

  Compilation& c_;
  const Homes& homes_;
  SegmentCode& code_;
};

}  // namespace galley
