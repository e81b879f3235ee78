// Makes the proofs that watch a run, for SessionOptions::watching: poison mode (poison.hpp), reference mode (reference.hpp), or both.
#pragma once

#include <functional>

#include "host/exec/watch.hpp"
#include "host/plugins/loader.hpp"
#include "host/proofs/poison.hpp"
#include "host/proofs/reference.hpp"

namespace galley {

enum class Poison : uint8_t { No, Yes };

/// Makes watches. `reference` is what reference mode needs; without a report there is no reference mode.
Watching watching(Poison poison, const ReferenceOptions& reference = {});

struct Proofs {
  Poison poison = Poison::No;
  ReferenceReport* reference = nullptr;                                             ///< if given, reference mode fills it
  ReferenceScope scope = {};                                                        ///< the scope of reference mode
  std::function<Result<std::vector<std::string>>(std::string_view)> exchange = {};  ///< see ReferenceOptions
};

/// Returns a function that makes the watches of a run with some plugins, which outlive the run. Null if nobody watches.
std::function<Watching(Plugins&)> watched_by(const Proofs& proofs);

}  // namespace galley
