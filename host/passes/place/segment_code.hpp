// Appends instructions to one segment of the program, for the other parts of `place`.
#pragma once

#include <string>
#include <vector>

#include "host/passes/compilation.hpp"

namespace galley {

/// Appends to a segment. Segments are made one after another, because events are numbered through all of them.
class SegmentCode {
 public:
  SegmentCode(Compilation& c, SegmentKind kind);

  SegmentKind kind() const { return kind_; }
  size_t size() const { return code().size(); }
  Instruction& add(Instruction instruction);
  Instruction& last() { return code().back(); }
  /// Appends a node of the host itself, over operands that are there. Its outputs must be as the op's shape rule says.
  Status op(const galley_op* op, const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs, AttrList attrs,
            When when = When::Always);
  /// Appends a copy: after all that was computed before it, and before what is computed next.
  void copy(const Operand& from, const Operand& to, When when = When::Always);
  /// Makes a tensor of this segment where kernels compute.
  Operand temporary(const std::string& name, uint32_t dtype, const Shape& shape, int use, Owner owner = Owner::Workspace);
  Operand all_of(TensorId id) const;
  const ProgramTensor& tensor(TensorId id) const { return c_.program.tensors[static_cast<size_t>(id)]; }

 private:
  std::vector<Instruction>& code() { return c_.program.segment(kind_).code; }
  const std::vector<Instruction>& code() const { return c_.program.segment(kind_).code; }

  Compilation& c_;
  const SegmentKind kind_;
  uint32_t events_ = 0;  ///< the highest event number so far
};

}  // namespace galley
