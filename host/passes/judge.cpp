#include "host/passes/judge.hpp"

#include <algorithm>
#include <optional>

#include "host/passes/verbs/handle.hpp"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

std::string value_text(Strategies strategies, const Claimed& c, bool by_claimant) {
  if (by_claimant) return strategies[static_cast<size_t>(c.use)]->name();
  return c.text.empty() ? std::to_string(c.number) : c.text;
}

bool equal(const Claimed& a, const Claimed& b) { return a.number == b.number && a.text == b.text && a.attrs.key() == b.attrs.key(); }

/// What strategies claim in one round.
struct Collected {
  Strategies strategies;
  uint32_t facet;
  const std::vector<galley_subject>& subjects;
  int use;  ///< whose call runs
  std::vector<std::vector<Said>> answers;
  std::optional<Error> refused;  ///< a claim that makes no sense: that is the error, whatever the call makes of it

  galley_status take(uint64_t at, const galley_claim_value* from, galley_error* error) {
    const std::string wrong = add(at, from);
    if (wrong.empty()) return GALLEY_OK;
    fill_error(error, GALLEY_INVALID, wrong, "");
    if (!refused) refused = plugin_error(label_and_plugin(strategies, use) + ": " + wrong);
    return GALLEY_INVALID;
  }

 private:
  /// What is wrong with the claim, or "".
  std::string add(uint64_t at, const galley_claim_value* from) {
    if (at >= subjects.size())
      return "claims '" + std::string(facet_name(facet)) + "' of subject " + std::to_string(at) + " of " + std::to_string(subjects.size());
    const std::string what = "claims '" + std::string(facet_name(facet)) + "' of '" + subjects[at].name + "'";
    if (const std::string problem = struct_problem(from); !problem.empty()) return what + " by a value that " + problem;
    const galley_claim_value value = read_struct(*from);
    if (value.strength != GALLEY_WEAK && value.strength != GALLEY_STRONG)
      return what + " with the strength " + std::to_string(value.strength) + "; there are GALLEY_WEAK and GALLEY_STRONG";
    if (std::ranges::any_of(answers[at], [&](const Said& said) { return said.value.use == use; })) return what + " twice";
    Claimed said = {true, use, value.number, value.text ? value.text : "", {}};
    if (Status status = said.attrs.add(value.attrs, value.n_attrs); !status.ok()) return what + ": " + status.error().cause;
    answers[at].push_back({value.strength, std::move(said)});
    return {};
  }
};

galley_status take(void* context, uint64_t subject, const galley_claim_value* value, galley_error* error) {
  try {
    return static_cast<Collected*>(context)->take(subject, value, error);
  } catch (...) {  // no exception of the host crosses the ABI
    fill_error(error, GALLEY_NO_MEMORY, "out of memory", "");
    return GALLEY_NO_MEMORY;
  }
}

}  // namespace

Result<Claimed> judge(Strategies strategies, uint32_t facet, const galley_subject& subject, const std::vector<Said>& answers) {
  // An update is its strategy's own work: two that would do it never agree.
  const bool by_claimant = facet == GALLEY_FACET_UPDATE;
  uint32_t strongest = 0;
  for (const Said& said : answers) strongest = std::max(strongest, said.strength);
  Claimed winner;
  if (answers.empty()) return winner;
  for (const Said& said : answers) {
    if (said.strength != strongest) continue;
    if (!winner.claimed) {
      winner = said.value;
      continue;
    }
    if (!by_claimant && equal(winner, said.value)) continue;
    if (facet == GALLEY_FACET_TRAINABLE) {
      const auto does = [&](const Claimed& c) {
        return label(strategies, c.use) + (c.number == 0 ? " freezes" : c.number == 1 ? " trains" : " writes");
      };
      return recipe_error("two strategies decide what is trained: " + does(winner) + " '" + subject.name + "', " + does(said.value) + " it",
                          "take one of the two out, or narrow it to other parameters; two adapters do not go together");
    }
    return recipe_error("two strategies decide '" + std::string(facet_name(facet)) + "' of '" + subject.name +
                            "': " + label(strategies, winner.use) + " says " + value_text(strategies, winner, by_claimant) + ", " +
                            label(strategies, said.value.use) + " says " + value_text(strategies, said.value, by_claimant),
                        "one owner a property: take one of the two out, or narrow it to other tensors");
  }
  return winner;
}

Result<std::vector<std::vector<Said>>> claims(Compilation& c, uint32_t facet, const std::vector<galley_subject>& subjects) {
  Collected all = {c.strategies, facet, subjects, 0, std::vector<std::vector<Said>>(subjects.size()), {}};
  std::vector<const galley_subject*> pointers;
  for (const galley_subject& s : subjects) pointers.push_back(&s);
  auto call = new_struct<galley_claim_call>();
  call.facet = facet;
  call.subjects = pointers.data();
  call.n_subjects = pointers.size();
  call.context = &all;
  call.claim = take;
  for (size_t i = 0; i < c.strategies.size(); ++i) {
    const LoadedStrategy& s = *c.strategies[i];
    if (!s.claim()) continue;
    all.use = static_cast<int>(i);
    Author author = c.graph.author;
    author.use = all.use;
    const Status asked = call_strategy(c, author, "claim", [&](galley_graph* graph, galley_error* error) {
      return s.claim()->claim(s.instance(), GraphHandle::reader(), graph, &call, error);
    });
    if (all.refused) return *all.refused;
    TRY_STATUS(asked);
  }
  return std::move(all.answers);
}

}  // namespace galley
