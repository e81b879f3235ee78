// Updates of tensors that lie where nothing computes, in pieces: while one piece is updated, the next one comes and the last one goes.
#pragma once

#include "host/passes/place/homes.hpp"

namespace galley {

/// How an update is split; 0 numbers: it is not.
struct Pieces {
  int64_t numbers = 0, all = 0;
  bool rows = false;
};

Result<Pieces> pieces_of(Compilation& c, const Homes& homes, const Item& item);

}  // namespace galley
