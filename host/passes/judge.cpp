#include "host/passes/judge.hpp"

#include "host/plugins/abi.hpp"

namespace galley {
namespace {

std::string value_text(Strategies strategies, const Claimed& c, bool by_claimant) {
  if (by_claimant) return strategies[static_cast<size_t>(c.use)]->name();
  return c.text.empty() ? std::to_string(c.number) : c.text;
}

bool equal(const Claimed& a, const Claimed& b) { return a.number == b.number && a.text == b.text && a.attrs.key() == b.attrs.key(); }

}  // namespace

Result<Claimed> judge(Strategies strategies, const galley_subject& subject, const std::vector<Said>& answers, bool by_claimant) {
  uint32_t strongest = GALLEY_ABSTAIN;
  for (const Said& said : answers) strongest = std::max(strongest, said.strength);
  Claimed winner;
  if (strongest == GALLEY_ABSTAIN) return winner;
  for (const Said& said : answers) {
    if (said.strength != strongest) continue;
    if (!winner.claimed) {
      winner = said.value;
      continue;
    }
    if (!by_claimant && equal(winner, said.value)) continue;
    if (subject.facet == GALLEY_FACET_TRAINABLE) {
      const auto does = [&](const Claimed& c) {
        return label(strategies, c.use) + (c.number == 0 ? " freezes" : c.number == 1 ? " trains" : " writes");
      };
      return recipe_error("two strategies decide what is trained: " + does(winner) + " '" + subject.name + "', " + does(said.value) + " it",
                          "take one of the two out, or narrow it to other parameters; two adapters do not go together");
    }
    return recipe_error("two strategies decide '" + std::string(facet_name(subject.facet)) + "' of '" + subject.name +
                            "': " + label(strategies, winner.use) + " says " + value_text(strategies, winner, by_claimant) + ", " +
                            label(strategies, said.value.use) + " says " + value_text(strategies, said.value, by_claimant),
                        "one owner a property: take one of the two out, or narrow it to other tensors");
  }
  return winner;
}

Result<Claimed> claim(Graph& graph, Strategies strategies, const galley_subject& subject) {
  std::vector<Said> answers;
  for (size_t i = 0; i < strategies.size(); ++i) {
    const LoadedStrategy& s = *strategies[i];
    if (!s.claim()) continue;
    auto value = new_struct<galley_claim_value>();
    Author author = graph.author;
    author.use = static_cast<int>(i);
    TRY_STATUS(call_strategy(graph, strategies, author, "claim", [&](galley_error* error) {
      return s.claim()->claim(s.instance(), Graph::reader(), graph.handle(), &subject, &value, error);
    }));
    if (value.strength == GALLEY_ABSTAIN) continue;
    if (value.strength > GALLEY_STRONG)
      return plugin_error(label(strategies, static_cast<int>(i)) + ", plugin '" + s.caller().plugin + "': claims '" +
                          facet_name(subject.facet) + "' of '" + subject.name + "' with the strength " + std::to_string(value.strength) +
                          "; there are GALLEY_WEAK and GALLEY_STRONG");
    Claimed said = {true, static_cast<int>(i), value.number, value.text ? value.text : "", {}};
    if (Status status = said.attrs.add(value.attrs, value.n_attrs); !status.ok())
      return plugin_error(label(strategies, said.use) + ", plugin '" + s.caller().plugin + "', claim: " + status.error().cause);
    answers.push_back({value.strength, std::move(said)});
  }
  // An update is its strategy's own work: two that would do it never agree.
  return judge(strategies, subject, answers, subject.facet == GALLEY_FACET_UPDATE);
}

}  // namespace galley
