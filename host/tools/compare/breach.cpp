#include "host/tools/compare/breach.hpp"

#include <algorithm>
#include <set>

#include "host/base/json.hpp"

namespace galley {
namespace {

using Uses = std::vector<const LoadedStrategy*>;

std::string text_of(const Value& value) {
  const auto* foreign = value.as<Foreign>();
  return foreign ? foreign->written() : to_json(value);
}

/// A use's options as text: of those that `known` has, or of all.
std::string options_of(const LoadedStrategy& use, const StrategySpec* known = nullptr) {
  std::string out;
  for (const auto& [name, value] : use.options().values())
    if (!known || known->option(name)) out += name + "=" + text_of(value) + "\n";
  return out;
}

/// The uses of `a` that `b` has not.
Uses only_in(const Study& a, const Study& b) {
  std::multiset<std::string> others;
  for (const auto& use : b.loaded) others.insert(use->name() + "\n" + options_of(*use));
  Uses out;
  for (const auto& use : a.loaded) {
    const auto found = others.find(use->name() + "\n" + options_of(*use));
    if (found == others.end()) out.push_back(use.get());
    else others.erase(found);
  }
  return out;
}

/// By what the batch of the recipe without a use is multiplied; 0: it declares nothing beside that recipe.
int64_t factor_of(const LoadedStrategy& use, const Recipe& recipe) {
  const Against& against = use.spec().against;
  const auto given = std::find_if(recipe.uses.begin(), recipe.uses.end(),
                                  [&](const Use& u) { return u.name == use.name() && u.place.text() == use.place().text(); });
  if (against.arm != Against::Arm::Without || given == recipe.uses.end() || !against.holds(use.options().values(), given->options))
    return 0;
  const Value* factor = against.batch.empty() ? nullptr : use.options().find(against.batch);
  return factor && factor->as<int64_t>() ? *factor->as<int64_t>() : 1;
}

/// All that a declaration takes for granted. `factor`: of the batch of b.
bool same_but_for_strategies(const Recipe& a, const Recipe& b, int64_t factor) {
  const auto written = [](const Recipe& r) {
    return r.model.path.string() + "\n" + r.model.family + "\n" + to_json(Value(r.model.config)) + "\n" + r.data.kind + "\n" +
           to_json(Value(r.data.options));
  };
  return written(a) == written(b) && a.model.random == b.model.random && a.length == b.length && a.seed == b.seed && a.steps == b.steps &&
         a.head_rows == b.head_rows && a.lanes == b.lanes && a.kernels == b.kernels && a.deterministic == b.deterministic &&
         a.save.dtype == b.save.dtype && (factor == 1 ? a.batch == b.batch : a.batch && b.batch && *a.batch * factor == *b.batch);
}

/// What was seen of an arm.
struct Seen {
  Verdict verdict;
  bool apart;
};

bool denied(Exactness declared, const Seen& seen) {
  if (declared == Exactness::Bits) return seen.verdict != Verdict::Identical;
  const bool judged = seen.verdict != Verdict::Identical && seen.verdict != Verdict::Rounding && seen.verdict != Verdict::Numbers;
  return declared == Exactness::Rounding && judged && seen.apart;
}

std::string said(const LoadedStrategy& use, const std::string& declares) {
  return "'" + use.name() + "' (" + use.place().text() + "), plugin '" + use.plugin().manifest.id + "', declares " + declares;
}

/// `with` has uses that `without` has not.
std::string of_added(const Study& with, const Study& without, const Uses& added, const Seen& seen) {
  int64_t factor = 1;
  Exactness weakest = Exactness::Bits;
  for (const LoadedStrategy* use : added) {
    factor *= factor_of(*use, with.recipe);
    weakest = std::max(weakest, use->spec().exactness);
  }
  if (factor == 0 || !denied(weakest, seen) || !same_but_for_strategies(with.recipe, without.recipe, factor)) return {};
  std::string out;
  for (const LoadedStrategy* use : added)
    out += (out.empty() ? "" : "; ") +
           said(*use, use->spec().exactness == Exactness::Bits ? "the same bytes" : "no more difference than rounding makes");
  return out;
}

std::string of_replaced(const Study& a, const Study& b, const LoadedStrategy& use, const LoadedStrategy& other, const Seen& seen) {
  const Against& against = use.spec().against;
  if (against.arm != Against::Arm::Instead || against.strategy != other.name() || !denied(use.spec().exactness, seen)) return {};
  if (options_of(use, &other.spec()) != options_of(other, &use.spec()) || !same_but_for_strategies(a.recipe, b.recipe, 1)) return {};
  return said(use, "to be '" + other.name() + "'");
}

}  // namespace

std::string breach_of(const Study& baseline, const Study& arm, Verdict verdict, bool apart) {
  if (baseline.program.lanes != arm.program.lanes) return {};  // what is declared holds for the same lanes
  const Seen seen = {verdict, apart};
  const Uses more = only_in(arm, baseline), less = only_in(baseline, arm);
  if (!more.empty() && less.empty()) return of_added(arm, baseline, more, seen);
  if (more.empty() && !less.empty()) return of_added(baseline, arm, less, seen);
  if (more.size() != 1 || less.size() != 1) return {};
  const std::string out = of_replaced(arm, baseline, *more[0], *less[0], seen);
  return out.empty() ? of_replaced(baseline, arm, *less[0], *more[0], seen) : out;
}

}  // namespace galley
