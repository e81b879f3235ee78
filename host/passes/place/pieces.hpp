// Splits updates of tensors that lie where nothing computes: while one piece is updated, the next is copied in and the last one out.
#pragma once

#include "host/passes/place/homes.hpp"

namespace galley {

/// Says how an update is split: into pieces of so many numbers; 0: it is not.
struct Pieces {
  int64_t numbers = 0, all = 0;
  bool rows = false;
};

/// Returns the least common multiple, or `most` if that is larger.
int64_t multiple_of(int64_t a, int64_t b, int64_t most);
/// Returns how many elements of a tensor an op keeps together; 0: it needs the whole tensor.
int64_t grain_of(const galley_op* op, const Shape& shape);
/// Returns whether pieces of so many numbers have components of their own: whole elements, in the shapes that the format gives a tensor of
/// a piece's shape. What is packed with random bits has to draw them by what comes before the piece.
Result<bool> splits(Compilation& c, const GraphTensor& of, int64_t numbers, bool rows);
/// Returns the pieces of an item, or of the part of it that this process computes.
Result<Pieces> pieces_of(Compilation& c, const Homes& homes, const Item& item);

}  // namespace galley
