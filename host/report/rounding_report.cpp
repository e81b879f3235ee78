#include "host/report/rounding_report.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "host/base/columns.hpp"
#include "host/report/updates_report.hpp"

namespace galley {
namespace {

struct Kind {
  std::string name, dtype;
  int tensors = 0;
  double least = 0, most = 0;
};

std::string line(const Kind& kind, size_t width) {
  char text[96];
  if (kind.tensors == 1) std::snprintf(text, sizeof text, "  %s  %.2e", kind.dtype.c_str(), kind.most);
  else std::snprintf(text, sizeof text, "  %s  %.2e to %.2e in %d tensors", kind.dtype.c_str(), kind.least, kind.most, kind.tensors);
  return "  " + left_in(kind.name, width) + text + "\n";
}

}  // namespace

std::string rounding_text(std::span<const Rounded> rounded, size_t columns) {
  std::vector<Kind> kinds;
  for (const Rounded& r : rounded) {
    if (r.error == 0) continue;
    const std::string name = without_numbers(r.entry);
    auto at = std::ranges::find(kinds, name, &Kind::name);
    if (at == kinds.end()) at = kinds.insert(at, {name, dtype_text(r.dtype), 0, r.error, r.error});
    ++at->tensors;
    at->least = std::min(at->least, r.error);
    at->most = std::max(at->most, r.error);
  }
  if (kinds.empty()) return "";
  const size_t widest = std::ranges::max(kinds, {}, [](const Kind& k) { return k.name.size(); }).name.size();
  const size_t width = std::min(widest, std::max<size_t>(columns, 70) - 50);
  std::string out = "rounded, with the norm of what that took over the norm of the numbers:\n";
  for (const Kind& kind : kinds) out += line(kind, width);
  return out;
}

Value rounding_json(std::span<const Rounded> rounded) {
  List out;
  for (const Rounded& r : rounded)
    out.emplace_back(Table{{"file", Value(r.file)},
                           {"tensor", Value(r.entry)},
                           {"dtype", Value(dtype_text(r.dtype))},
                           {"numbers", Value(r.numbers)},
                           {"error", Value(r.error)}});
  return Value(std::move(out));
}

}  // namespace galley
