// The proofs that a run may be under, for SessionOptions::watching: each instruction in poison mode (poison.hpp), or beside the references of
// the ops (reference.hpp), or both.
#pragma once

#include <functional>

#include "host/exec/watch.hpp"
#include "host/plugins/loader.hpp"
#include "host/proofs/poison.hpp"
#include "host/proofs/reference.hpp"

namespace galley {

enum class Poison : uint8_t { No, Yes };

/// `reference`: what reference mode needs; without a report there is none.
Watching watching(Poison poison, const ReferenceOptions& reference = {});

struct Proofs {
  Poison poison = Poison::No;
  ReferenceReport* reference = nullptr;  ///< given: reference mode, which fills it
  ReferenceScope scope = {};             ///< of it
};

/// Of a run with these plugins, which outlive it. Null: nobody watches.
std::function<Watching(Plugins&)> watched_by(const Proofs& proofs);

}  // namespace galley
