#include <algorithm>

#include "host/base/json.hpp"
#include "host/compare/certify.hpp"
#include "host/compare/printed.hpp"

namespace galley {
namespace {

/// "0", "1.2e-07"; "-": not compared.
std::string seen_text(const SeenDifference& seen) {
  return !seen.largest ? "-" : *seen.largest == 0 ? "0" : printed("%.1e", *seen.largest);
}

std::string cut(const std::string& text, size_t most) { return text.size() <= most ? text : text.substr(0, most - 2) + ".."; }

Value seen_json(const SeenDifference& seen) {
  if (!seen.largest) return {};
  return Value(Table{{"largest", Value(*seen.largest)}, {"tensor", Value(seen.tensor)}});
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
  std::string out = printed("%-19s %-11s %-11s %8s %8s %8s\n", "strategy", "declared", "against", "loss", "gradient", "update");
  for (const Certificate& c : certified.strategies) {
    const bool breach = c.verdict == Certificate::Verdict::Breach;
    out += printed("%-19s %-11s %-11s %8s %8s %8s  %s%s%s\n", cut(c.strategy, 19).c_str(), exactness_name(c.declared),
                   cut(c.against, 11).c_str(), seen_text(c.loss).c_str(), seen_text(c.gradients).c_str(), seen_text(c.updates).c_str(),
                   breach ? red : "", verdict_name(c.verdict), breach ? plain : "");
  }
  for (const Certificate& c : certified.strategies) {
    if (c.sentence.empty()) continue;
    const bool breach = c.verdict == Certificate::Verdict::Breach;
    out += (breach ? red : "") + c.strategy + " (" + c.place + "): " + verdict_name(c.verdict) + (breach ? plain : "") + ": " + c.sentence +
           "\n";
  }
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
                             {"fault", Value(certified.fault)}}),
                 2) +
         "\n";
}

}  // namespace galley
