#include "host/tools/report/rounding_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "host/tools/report/columns.hpp"
#include "host/tools/report/updates_report.hpp"

namespace galley {
namespace {

struct Kind {
  std::string name, dtype;
  int tensors = 0;
  double least = 0, most = 0;
  std::optional<double> least_trained = {}, most_trained = {};  ///< over what was trained
};

std::optional<double> of_trained(const Rounded& r) {
  return r.trained && *r.trained > 0 ? std::optional(r.lost / *r.trained) : std::nullopt;
}

/// "38 %", "0.21 %"
std::string share_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, share < 0.1 ? "%.2g %%" : "%.0f %%", 100 * share);
  return text;
}

std::string line(const Kind& kind, size_t width) {
  char text[128];
  std::string trained;
  if (kind.most_trained) {
    trained = share_text(*kind.least_trained);
    if (const std::string most = share_text(*kind.most_trained); most != trained) trained += " to " + most;
    trained = ", " + trained;
  }
  if (kind.tensors == 1) std::snprintf(text, sizeof text, "  %s  %.2e%s", kind.dtype.c_str(), kind.most, trained.c_str());
  else
    std::snprintf(text, sizeof text, "  %s  %.2e to %.2e%s in %d tensors", kind.dtype.c_str(), kind.least, kind.most, trained.c_str(),
                  kind.tensors);
  return "  " + left_in(kind.name, width) + text + "\n";
}

}  // namespace

std::string rounding_text(std::span<const Rounded> rounded, size_t columns) {
  std::vector<Kind> kinds;
  for (const Rounded& r : rounded) {
    if (r.error == 0) continue;
    const std::string name = without_numbers(r.entry);
    auto at = std::ranges::find(kinds, name, &Kind::name);
    if (at == kinds.end()) at = kinds.insert(at, Kind{name, dtype_text(r.dtype), 0, r.error, r.error});
    if (const auto share = of_trained(r)) {
      at->least_trained = std::min(at->least_trained.value_or(*share), *share);
      at->most_trained = std::max(at->most_trained.value_or(*share), *share);
    }
    ++at->tensors;
    at->least = std::min(at->least, r.error);
    at->most = std::max(at->most, r.error);
  }
  if (kinds.empty()) return "";
  const size_t widest = std::ranges::max(kinds, {}, [](const Kind& k) { return k.name.size(); }).name.size();
  const auto share = taken_of_trained(rounded);
  const size_t width = std::min(widest, std::max<size_t>(columns, 70) - (share ? 65 : 50));
  std::string out = "rounded, with the norm of what that took over the norm of the numbers";
  out += share ? ", and over that of what was trained:\n" : ":\n";
  for (const Kind& kind : kinds) out += line(kind, width);
  if (!share) return out;
  const bool much = *share > kMuchOfTrained;
  out += std::string(much ? "warning: " : "") + "rounding takes " + share_text(*share) + " of what was trained";
  return out + (much ? "; --dtype f32 keeps all of it, and so does an adapter without --merge\n" : "\n");
}

std::optional<double> taken_of_trained(std::span<const Rounded> rounded) {
  double lost = 0, trained = 0;
  for (const Rounded& r : rounded) {
    if (!r.trained || *r.trained == 0) continue;  // frozen
    lost += r.lost * r.lost;
    trained += *r.trained * *r.trained;
  }
  return trained > 0 ? std::optional(std::sqrt(lost / trained)) : std::nullopt;
}

Value rounding_json(std::span<const Rounded> rounded) {
  List out;
  for (const Rounded& r : rounded)
    out.emplace_back(Table{{"file", Value(r.file)},
                           {"tensor", Value(r.entry)},
                           {"dtype", Value(dtype_text(r.dtype))},
                           {"numbers", Value(r.numbers)},
                           {"error", Value(r.error)},
                           {"of_trained", of_trained(r) ? Value(*of_trained(r)) : Value()}});
  return Value(std::move(out));
}

}  // namespace galley
