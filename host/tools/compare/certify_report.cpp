#include <algorithm>

#include "host/base/json.hpp"
#include "host/tools/compare/certify.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

/// "0", "1.2e-07"; "-": there is none.
std::string cell_text(const std::optional<double>& number) { return !number ? "-" : *number == 0 ? "0" : printed("%.1e", *number); }

std::string cut(const std::string& text, size_t most) { return text.size() <= most ? text : text.substr(0, most - 2) + ".."; }

Value seen_json(const SeenDifference& seen) {
  if (!seen.largest) return {};
  const auto number = [](const std::optional<double>& x) { return x ? Value(*x) : Value(); };
  return Value(Table{
      {"largest", Value(*seen.largest)}, {"tensor", Value(seen.tensor)}, {"control", number(seen.control)}, {"bound", number(seen.bound)}});
}

}  // namespace

const char* verdict_name(Certificate::Verdict verdict) {
  switch (verdict) {
    case Certificate::Verdict::Holds: return "holds";
    case Certificate::Verdict::Breach: return "BREACH";
    case Certificate::Verdict::NotHeld: break;
  }
  return "not held";
}

std::string certify_table(const Certified& certified, const char* red, const char* plain) {
  std::string out = printed("%-17s %-8s %-10s %-8s %7s %7s %7s\n", "strategy", "declared", "against", "of", "differs", "control", "bound");
  for (const Certificate& c : certified.strategies) {
    const bool breach = c.verdict == Certificate::Verdict::Breach;
    const std::string verdict = std::string(breach ? red : "") + verdict_name(c.verdict) + (breach ? plain : "");
    const std::string declared = c.declared == Exactness::Approximate ? "approx." : exactness_name(c.declared);
    std::string name = printed("%-17s %-8s %-10s", cut(c.strategy, 17).c_str(), declared.c_str(), cut(c.against, 10).c_str());
    bool first = true;
    for (const auto& [of, seen] : {std::pair("loss", &c.loss), std::pair("gradient", &c.gradients), std::pair("update", &c.updates)}) {
      if (!seen->largest) continue;
      out += printed("%-37s %-8s %7s %7s %7s", first ? name.c_str() : "", of, cell_text(seen->largest).c_str(),
                     cell_text(seen->control).c_str(), cell_text(seen->bound).c_str()) +
             (first ? "  " + verdict : "") + "\n";
      first = false;
    }
    if (first) out += printed("%-37s %-8s %7s %7s %7s  ", name.c_str(), "-", "-", "-", "-") + verdict + "\n";
  }
  for (const Certificate& c : certified.strategies) {
    if (c.sentence.empty()) continue;
    const bool breach = c.verdict == Certificate::Verdict::Breach;
    out += (breach ? red : "") + c.strategy + " (" + c.place + "): " + verdict_name(c.verdict) + (breach ? plain : "") + ": " + c.sentence +
           "\n";
  }
  if (certified.unsteady.empty())
    out += printed("at other addresses and with %lld thread%s: the same bytes\n", static_cast<long long>(certified.other_threads),
                   certified.other_threads == 1 ? "" : "s");
  if (const int64_t held = certified.reference.rules_held(); held > 0)
    out += printed("gradient rules held against finite differences: %lld\n", static_cast<long long>(held));
  for (const auto& [op, why] : certified.reference.no_rule)
    out +=
        "gradient rule of '" + op + "': not held" + (certified.reference.rules.contains(op) ? " for some nodes" : "") + ": " + why + "\n";
  if (!certified.fault.empty()) out += std::string(red) + "outside of the strategies" + plain + ": " + certified.fault + "\n";
  return out;
}

std::string certify_json(const Certified& certified) {
  List strategies;
  for (const Certificate& c : certified.strategies)
    strategies.push_back(Value(Table{{"strategy", Value(c.strategy)},
                                     {"place", Value(c.place)},
                                     {"plugin", Value(c.plugin)},
                                     {"declared", Value(std::string(exactness_name(c.declared)))},
                                     {"against", Value(c.against)},
                                     {"verdict", Value(std::string(verdict_name(c.verdict)))},
                                     {"loss", seen_json(c.loss)},
                                     {"gradients", seen_json(c.gradients)},
                                     {"updates", seen_json(c.updates)},
                                     {"sentence", Value(c.sentence)}}));
  int64_t compared = 0;
  for (const auto& [op, count] : certified.reference.compared) compared += count.outputs;
  return to_json(Value(Table{{"strategies", Value(std::move(strategies))},
                             {"steps", Value(certified.steps)},
                             {"reference_outputs", Value(compared)},
                             {"gradient_rules", Value(certified.reference.rules_held())},
                             {"kept_promises", Value(certified.reference.promises)},
                             {"unsteady", Value(certified.unsteady)},
                             {"fault", Value(certified.fault)}}),
                 2) +
         "\n";
}

}  // namespace galley
