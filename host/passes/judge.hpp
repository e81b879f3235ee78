// Claims: what strategies say about one property of a tensor, a node or the run, and whose word holds.
#pragma once

#include <vector>

#include "galley/claim.h"
#include "host/passes/strategies.hpp"

namespace galley {

struct Claimed {
  bool claimed = false;
  int use = no_use;  ///< who won
  int64_t number = 0;
  std::string text;
  AttrList attrs;  ///< options of what `text` names
};

/// The name of a facet for messages.
const char* facet_name(uint32_t facet);

/// One strategy's answer.
struct Said {
  uint32_t strength = GALLEY_ABSTAIN;
  Claimed value;
};

/// Judges all answers at once, so that the order in the recipe decides nothing: the strongest hold, and they must agree. `by_claimant`:
/// values of different strategies are unequal whatever they say.
Result<Claimed> judge(Strategies strategies, const galley_subject& subject, const std::vector<Said>& answers, bool by_claimant);

/// Asks every strategy about one subject, then judges.
Result<Claimed> claim(Graph& graph, Strategies strategies, const galley_subject& subject);

}  // namespace galley
