#include "host/session/unfit.hpp"

#include <algorithm>
#include <vector>

#include "host/base/units.hpp"

namespace galley {
namespace {

/// Whether one of the recipe's strategies decides a facet, by its manifest; `value`: as this.
bool decided(const Study& s, const char* facet, const char* value = nullptr) {
  return std::ranges::any_of(s.loaded, [&](const auto& used) {
    return std::ranges::any_of(used->spec().provides, [&](const FacetRule& has) {
      return has.facet == facet && has.holds(used->options().values()) &&
             (!value || (has.value.as<std::string>() && *has.value.as<std::string>() == value));
    });
  });
}

/// What makes that less which an owner has at the peak, of what the recipe does not do yet.
std::string remedy(const Study& s, Owner owner) {
  const std::string length = std::to_string(s.program.length), rows = std::to_string(s.program.rows);
  const std::string smaller =
      s.program.rows > 1 ? "a smaller batch (now " + rows + " rows of " + length + ")" : "shorter rows (now " + length + ")";
  switch (owner) {
    case Owner::Saved: return (decided(s, "saved") ? "" : "recomputation, or ") + smaller;
    case Owner::Caches: {
      const auto in_8_bit = [](const ProgramTensor& t) { return t.owner == Owner::Caches && t.dtype == GALLEY_I8; };
      return (std::ranges::any_of(s.program.tensors, in_8_bit) ? "" : "keys and values in 8 bit, or ") + smaller;
    }
    case Owner::States:
      return "an optimizer that keeps less, in 8 bit or by rows and columns; or an adapter in the place of all parameters";
    case Owner::Gradients:
      return decided(s, "gradient lifetime") ? "an adapter in the place of all parameters"
                                             : "updates in the backward pass; or an adapter in the place of all parameters";
    case Owner::Weights:
      if (!decided(s, "compute")) return "weights in 16 bit";
      return decided(s, "trainable", "adapter") ? "frozen weights in 8 or 4 bit" : "an adapter beside weights in 8 or 4 bit";
    default: return smaller;  // activations, workspace, data
  }
}

/// "saved is 9.00 GiB of it: recomputation, or a smaller batch (now 8 rows of 512)": of the owners that have the most at the peak.
std::string remedies(const Study& s, const ClassPlan& plan) {
  std::vector<size_t> order;
  for (size_t o = 0; o < owner_names.size(); ++o)
    if (8 * plan.owners[o] >= plan.planned) order.push_back(o);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return plan.owners[a] > plan.owners[b]; });
  order.resize(std::min<size_t>(order.size(), 3));
  std::string out;
  for (const size_t o : order)
    out += (out.empty() ? "" : "; ") + std::string(owner_names[o]) + ", " + bytes_text(plan.owners[o]) + ": " +
           remedy(s, static_cast<Owner>(o));
  return out;
}

/// "at most 300 tokens (now 512); or ": the context whose caches of keys and values fit; "": there are none, or nothing would.
std::string shorter_context(const Study& s, int64_t over) {
  int64_t caches = 0;
  for (const ProgramTensor& t : s.program.tensors)
    if (t.owner == Owner::Caches) caches += t.bytes;
  if (caches == 0) return "";
  const int64_t a_position = caches / s.program.length, fits = s.program.length - (over + a_position - 1) / a_position;
  if (fits < 1) return "";
  return "a context of at most " + std::to_string(fits) + " tokens (now " + std::to_string(s.program.length) + "): --length " +
         std::to_string(fits) + "; or ";
}

}  // namespace

Error does_not_fit(const Study& s, const ClassPlan& plan, int64_t needed, const std::string& of, const std::string& whose, int64_t limit) {
  const bool equal = bytes_text(needed) == bytes_text(limit);
  const auto text = [&](int64_t bytes) { return equal ? std::to_string(bytes) + " bytes" : bytes_text(bytes); };
  const std::string needs = "the plan needs " + text(needed) + of;
  std::string owners;
  for (size_t o = 0; o < owner_names.size(); ++o)
    if (const int64_t bytes = plan.owners[o]; bytes > 0)
      owners += (owners.empty() ? "" : ", ") + std::string(owner_names[o]) + " " + bytes_text(bytes);
  return {Exit::DoesNotFit, needs + ", " + whose + " has " + text(limit) + " (at the peak: " + owners + ")",
          "what helps here: " + shorter_context(s, needed - limit) + remedies(s, plan)};
}

}  // namespace galley
