// Splits updates of tensors that lie where nothing computes: while one piece is updated, the next is copied in and the last one out.
#pragma once

#include "host/passes/place/homes.hpp"

namespace galley {

/// Says how an update is split: into pieces of so many numbers; 0: it is not.
struct Pieces {
  int64_t numbers = 0, all = 0;
  bool rows = false;
};

Result<Pieces> pieces_of(Compilation& c, const Homes& homes, const Item& item);

}  // namespace galley
