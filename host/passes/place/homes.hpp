// Maps each tensor of the graph to its home: the tensors of the program that hold it. A home may be several components of a format, and lie
// in a memory class where nothing computes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "host/passes/compilation.hpp"
#include "host/passes/place/components.hpp"

namespace galley {

/// A range of a tensor's numbers, as rows or as a list, which one piece of a split update works on. By default all of them.
struct TensorPiece {
  int64_t first = 0, count = -1;  ///< all numbers if the count is negative
  bool rows = false;

  bool all() const { return count < 0; }
  /// Returns the shape of the piece; of a range that is all of the tensor, the tensor's.
  Shape shape(const Shape& whole) const;
  int64_t first_row(const Shape& whole) const;  ///< the first number, if the piece is a list
  /// Returns the piece for an operand with this rule: all of the operand if it does not go by rows.
  TensorPiece of(const galley_operand_rule* rule) const;
  /// Returns this range of an operand that is all of a tensor.
  Operand of(Operand operand) const;
};

/// Adds a tensor to the program; its bytes follow from shape and dtype.
TensorId add_tensor(Program& program, ProgramTensor tensor);

/// The homes of tensors that live for the run or a window, and of those that one segment of a step leaves for another.
class Homes {
 public:
  /// The position where the numbers of a tensor begin.
  struct Place {
    TensorId tensor;
    int64_t offset;
  };

  explicit Homes(Compilation& c) : c_(c), tensors_(c.graph, c.orders) {}
  /// Makes the program's tensors, in the order of the graph's.
  Status make();
  /// Gives homes to the transients of `items` that one of `readers` reads in a later segment.
  void hand_on(const std::vector<Item>& items, const std::vector<const std::vector<Item>*>& readers);

  const Tensors& tensors() const { return tensors_; }
  bool contains(galley_tensor t) const { return components_.contains(t); }
  /// Returns the tensor of the program with its numbers, or with its first component.
  TensorId home(galley_tensor t) const { return components_.at(t).front(); }
  const std::vector<TensorId>& components(galley_tensor t) const { return components_.at(t); }
  /// Returns the descriptions of its components.
  const std::vector<Component>& described(galley_tensor t) const { return described_.at(t); }
  Place place(galley_tensor t) const;
  /// Returns all of a tensor's numbers, which must be plain.
  Operand operand(galley_tensor t) const { return operand(t, place(t)); }
  /// Returns all of its numbers, which begin at a place.
  Operand operand(galley_tensor t, Place at) const;
  /// Returns its components, or the elements of them that hold a piece of its numbers. Of a tensor that is divided, the piece has to be of
  /// this process's part; all of it is that part.
  Result<std::vector<Operand>> operands(galley_tensor t, const TensorPiece& piece) const;
  /// Returns how the tensor that has a tensor's numbers is divided between processes; null if each has the whole.
  const Cut* cut(galley_tensor t) const { return c_.cuts.of(base(t)); }
  /// Returns the own part of a tensor that is divided as `cut` says.
  TensorPiece own(const Cut& cut) const { return {cut.own().first, cut.own().count, cut.rows}; }
  /// Returns a step scalar in the buffer that the host reads at the end of a segment.
  Operand in_readback(galley_tensor t) const;

  /// Returns the tensor whose numbers it has: itself, unless it is a view.
  galley_tensor base(galley_tensor t) const { return tensors_[t].storage.numbers_of ? tensors_[t].storage.numbers_of : t; }
  /// Returns whether its home's bytes have to be unpacked or cast to be its numbers in its dtype.
  bool unpacks(galley_tensor t) const;
  /// Returns whether its numbers are plain: all of them, in its dtype, where kernels compute.
  bool plain(galley_tensor t) const { return !cut(t) && tensors_[base(t)].storage.placement.empty() && !unpacks(t); }

 private:
  Result<uint32_t> memory_of(const GraphTensor& t) const;
  /// Makes of a component that is to be added the part that this process has of it.
  void divide(const GraphTensor& t, const Cut& cut, const Component& component, ProgramTensor* home) const;
  ProgramTensor& made(TensorId id) const { return c_.program.tensors[static_cast<size_t>(id)]; }

  Compilation& c_;
  const Tensors tensors_;
  std::map<galley_tensor, std::vector<TensorId>> components_;
  std::map<galley_tensor, std::vector<Component>> described_;
};

}  // namespace galley
