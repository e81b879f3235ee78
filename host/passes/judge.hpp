// Asks strategies for claims on one property of a tensor, a node or the run, and decides whose claim holds.
#pragma once

#include <vector>

#include "galley/claim.h"
#include "host/passes/compilation.hpp"

namespace galley {

struct Claimed {
  bool claimed = false;
  int use = no_use;  ///< who won
  int64_t number = 0;
  std::string text;
  AttrList attrs;  ///< options of the format or class that `text` names
};

/// Returns the name of a facet for messages.
const char* facet_name(uint32_t facet);

/// One strategy's answer.
struct Said {
  uint32_t strength = 0;
  Claimed value;
};

/// Judges all answers at once, so that their order in the recipe decides nothing: the strongest answers hold, and they must agree.
Result<Claimed> judge(Strategies strategies, uint32_t facet, const galley_subject& subject, const std::vector<Said>& answers);

/// Asks every strategy once about a facet of these subjects. Returns the claims on each subject, in the same order, not yet judged.
Result<std::vector<std::vector<Said>>> claims(Compilation& c, uint32_t facet, const std::vector<galley_subject>& subjects);

}  // namespace galley
