// Which tensors of the program hold a tensor of the graph: its home. It may be in a format, as several components, and in a memory class
// where nothing computes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "host/passes/compilation.hpp"
#include "host/passes/place/components.hpp"

namespace galley {

/// A range of a tensor's numbers, as rows or as a list: those that one part of a split update is about. By default all of them.
struct TensorPiece {
  int64_t first = 0, count = -1;  ///< all numbers if the count is negative
  bool rows = false;

  bool all() const { return count < 0; }
  Shape shape(const Shape& whole) const;
  int64_t first_row(const Shape& whole) const;  ///< the first number, if the piece is a list
  /// What an operand with this rule has of the piece: where it does not go by rows, all of it.
  TensorPiece of(const galley_operand_rule* rule) const;
  /// This range of an operand that is all of a tensor.
  Operand of(Operand operand) const;
};

/// Adds a tensor to the program; its bytes follow from shape and dtype.
TensorId add_tensor(Program& program, ProgramTensor tensor);

/// The homes of tensors that live for the run or a window, and of what segments of a step hand to each other.
class Homes {
 public:
  /// Where the numbers of a tensor begin.
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
  /// The tensor of its numbers; of one in a format, of the first component.
  TensorId home(galley_tensor t) const { return components_.at(t).front(); }
  const std::vector<TensorId>& components(galley_tensor t) const { return components_.at(t); }
  /// What they are.
  const std::vector<Component>& described(galley_tensor t) const { return described_.at(t); }
  Place place(galley_tensor t) const;
  /// All of a tensor's numbers, which are plain.
  Operand operand(galley_tensor t) const { return operand(t, place(t)); }
  /// All of its numbers, as they begin at a place.
  Operand operand(galley_tensor t, Place at) const;
  /// Its components, or those elements of them that stand for a piece of its numbers.
  Result<std::vector<Operand>> operands(galley_tensor t, const TensorPiece& piece) const;
  /// A step scalar in the buffer that the host reads at the end of a segment.
  Operand in_readback(galley_tensor t) const;

  /// The tensor whose numbers it has: itself, unless it is a view.
  galley_tensor base(galley_tensor t) const { return tensors_[t].storage.numbers_of ? tensors_[t].storage.numbers_of : t; }
  /// Whether the bytes of its home are not its numbers in its dtype.
  bool unpacks(galley_tensor t) const;
  /// Whether its numbers lie where kernels compute, in its dtype.
  bool plain(galley_tensor t) const { return tensors_[base(t)].storage.placement.empty() && !unpacks(t); }

 private:
  Result<uint32_t> memory_of(const GraphTensor& t) const;
  ProgramTensor& made(TensorId id) const { return c_.program.tensors[static_cast<size_t>(id)]; }

  Compilation& c_;
  const Tensors tensors_;
  std::map<galley_tensor, std::vector<TensorId>> components_;
  std::map<galley_tensor, std::vector<Component>> described_;
};

}  // namespace galley
