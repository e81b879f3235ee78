#include "host/tools/compare/certify_judge.hpp"

#include <algorithm>
#include <cmath>

#include "host/tools/compare/printed.hpp"
#include "host/tools/compare/verdict.hpp"

namespace galley {
namespace {

/// Relative differences that any other order of sums in F32 makes: of a gradient, and of a weight, which every update rounds.
constexpr double kGradientFloor = 1e-5, kWeightFloor = 0x1p-22;
/// The same of a loss and a gradient where some numbers are kept in 16 bit, whose rounding is coarser.
constexpr double kLossFloor16 = 0x1p-12, kGradientFloor16 = 0x1p-7;
/// Of an update whose gradients differ: some optimizers compute in BF16, and make steps of half a percent of what differs by 1e-7.
constexpr double kFollowFloor = 0x1p-6;
/// A tensor's difference is relative to its own norm, or to this share of all tensors' where that is larger: what is zero but for rounding,
/// as the gradient of a key's bias is, differs by as much as it is.
constexpr double kLeastShare = 1e-3;

double loss_floor(const Allowed& allowed) { return allowed.in_16_bit ? kLossFloor16 : kBandFloor; }

/// A sentence grows by one difference; whether that is no breach.
bool note(bool holds, const std::string& text, Certificate& out) {
  if (!holds) note_of(out) += text;
  return holds;
}

/// A number that was seen, where it is nearer to its bound than what stands there. `bound` < 0: nothing bounds it.
void show(double difference, std::optional<double> control, double bound, const std::string& tensor, SeenDifference& out) {
  const auto share = [](double x, double most) { return most < 0 ? 0 : x == 0 ? 0 : most > 0 ? x / most : HUGE_VAL; };
  const double now = share(difference, bound), before = out.largest ? share(*out.largest, out.bound.value_or(-1)) : -1;
  if (now < before || (now == before && out.largest && difference <= *out.largest)) return;
  out.largest = difference;
  out.tensor = tensor;
  out.control = control;
  out.bound = bound < 0 || !std::isfinite(bound) ? std::nullopt : std::optional(bound);
}

std::string printed_name(const std::string& tensor) { return (tensor.starts_with("grad.") ? tensor.substr(5) : tensor).substr(0, 120); }

/// What a tensor's difference is measured by.
double measure_of(TensorsOf of, const TensorDistance& d) { return of == TensorsOf::Updates ? d.moved : d.norm; }

double middle_of(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  return numbers.empty() ? 0 : numbers[numbers.size() / 2];
}

double least_measure(TensorsOf of, const Distances& seen) {
  double all = 0;
  for (const auto& [name, d] : seen.tensors) all += name == "loss" ? 0 : measure_of(of, d) * measure_of(of, d);
  return kLeastShare * std::sqrt(all);
}

/// The middle one of all gradients' ‖a − b‖ / ‖b‖, and of their ‖a‖ / ‖b‖: on a short row a few tensors of the first layers may be as large
/// as all others together, and their gradient is mostly noise there. What is a small share of all, or 0, has nothing to say.
struct Middle {
  double distance = 0, size = 1;
};
Middle middle_gradient(const Distances& seen) {
  const double least = least_measure(TensorsOf::Gradients, seen);
  std::vector<double> distances, sizes;
  for (const auto& [name, d] : seen.tensors) {
    if (name == "loss" || d.norm <= least) continue;
    distances.push_back(d.difference / d.norm);
    sizes.push_back(d.other / d.norm);
  }
  return {middle_of(distances), sizes.empty() ? 1 : middle_of(sizes)};
}

/// The largest ‖a − b‖ / ‖b − o‖ of an update.
double largest_update(const Distances& seen) {
  const double least = least_measure(TensorsOf::Updates, seen);
  double out = 0;
  for (const auto& [name, d] : seen.tensors)
    if (d.moved > 0) out = std::max(out, d.difference / std::max(d.moved, least));
  return out;
}

bool any_difference(const Distances& seen) {
  return std::ranges::any_of(seen.tensors, [](const auto& x) { return x.first != "loss" && x.second.difference > 0; });
}

/// The tensor that differs most, for its name.
std::string furthest(TensorsOf of, const Distances& seen) {
  std::string out;
  double most = -1;
  for (const auto& [name, d] : seen.tensors)
    if (const double x = d.difference; name != "loss" && measure_of(of, d) > 0 && x > most) {
      most = x;
      out = name;
    }
  return out;
}

bool judge_number(TensorsOf of, double distance, const std::string& tensor, bool bounded, const Allowed& allowed, Certificate& out,
                  const char* which) {
  const double most = bounded && allowed.within ? *allowed.within : -1;
  show(distance, {}, most, tensor, of == TensorsOf::Updates ? out.updates : out.gradients);
  return note(most < 0 || distance <= most,
              std::string(of == TensorsOf::Updates ? "an update differs" : "the middle one of all gradients differs") + which +
                  printed(" by %.2g of its size, %.2g is declared", distance, most) +
                  (tensor.empty() ? "" : "; most in '" + printed_name(tensor) + "'"),
              out);
}

}  // namespace

std::string& note_of(Certificate& c) {
  if (!c.sentence.empty()) c.sentence += "; ";
  return c.sentence;
}

bool judge_losses(const std::vector<LossPair>& pairs, const Allowed& allowed, Certificate& out) {
  double band = 0;
  for (const LossPair& pair : pairs) {
    const bool small = allowed.declared == Exactness::Approximate && std::fabs(pair.other) < pair.usual;
    const double difference = same_bits(pair.loss, pair.other) ? 0
                              : small                          ? std::fabs(pair.loss - pair.other) / pair.usual
                                                               : relative_difference(pair.loss, pair.other);
    if (pair.control) band = std::max(band, *pair.control);
    const double most = allowed.declared == Exactness::Bits       ? 0
                        : allowed.declared == Exactness::Rounding ? std::max(loss_floor(allowed), kBandSlack * band)
                                                                  : allowed.within_loss.value_or(-1);
    show(difference, allowed.declared == Exactness::Rounding && pair.control ? std::optional(band) : std::nullopt, most, "", out.loss);
    const bool holds = allowed.declared == Exactness::Bits ? same_bits(pair.loss, pair.other) : most < 0 || difference <= most;
    if (!note(holds, printed("the loss %s is %.9g, and %.9g without", pair.of.c_str(), pair.loss, pair.other), out)) return false;
  }
  return true;
}

bool judge_tensors(TensorsOf of, const Distances& seen, const Distances* control, const Allowed& allowed, Certificate& out) {
  const bool weights = of == TensorsOf::Updates;
  // An update magnifies what gradients differ by, and then says little of the strategy.
  const bool follows = weights && out.follows;
  SeenDifference& shown = weights ? out.updates : out.gradients;
  if (allowed.declared == Exactness::Approximate) {
    if (!weights) return judge_windows({seen}, allowed, out);
    return judge_number(of, largest_update(seen), furthest(of, seen), !follows, allowed, out, "");
  }
  // A tensor that an update has not moved has no measure of its own: it is frozen, or the rate is 0.
  const double least = least_measure(of, seen);
  out.follows = out.follows || (!weights && any_difference(seen));
  show(0, {}, allowed.declared == Exactness::Bits ? 0 : -1, "", shown);
  // The tensor that is furthest beyond what is allowed.
  double worst = 1, worst_seen = 0, worst_allowed = 0;
  std::string breach;
  for (const auto& [name, d] : seen.tensors) {
    const bool loss = name == "loss";
    const double size = loss ? d.norm : std::max(measure_of(of, d), least);
    const double relative = d.difference == 0 ? 0 : size > 0 ? d.difference / size : HUGE_VAL;
    double most = 0;  // of the difference
    std::optional<double> of_control;
    if (allowed.declared == Exactness::Rounding) {
      const double floor = allowed.in_16_bit ? kGradientFloor16 : kGradientFloor;
      most = loss ? loss_floor(allowed) * d.norm : weights ? kWeightFloor * d.norm : floor * size;
      if (follows) most = std::max(most, kFollowFloor * size);
      if (control) {
        if (const auto found = control->tensors.find(name); found != control->tensors.end()) {
          most = std::max(most, kBandSlack * found->second.difference);
          of_control = size > 0 ? found->second.difference / size : 0;
        }
      }
    }
    show(relative, of_control, size > 0 ? most / size : most > 0 ? HUGE_VAL : 0, loss ? "" : name, loss ? out.loss : shown);
    const double beyond = d.difference <= most && (allowed.declared != Exactness::Bits || d.alike) ? 0
                          : most > 0                                                               ? d.difference / most
                                                                                                   : HUGE_VAL;
    if (beyond < worst || (beyond == worst && !breach.empty())) continue;
    worst = beyond;
    worst_seen = relative;
    worst_allowed = size > 0 ? most / size : 0;
    breach = name;
  }
  if (!breach.empty()) {
    const std::string what = breach == "loss" ? "the loss of the first window"
                                              : (weights ? "the update of '" : "the gradient of '") + printed_name(breach) + "'";
    return note(false,
                what + printed(" differs by %.2g of its size", worst_seen) +
                    (allowed.declared == Exactness::Bits ? std::string() : printed(", rounding by %.2g at most", worst_allowed)),
                out);
  }
  // What changes which parameters are trained has other gradients, and saves others.
  return note(seen.alone.empty() || !allowed.same_tensors,
              "'" + seen.alone.substr(0, 120) + (weights ? "' is saved by one of the two only" : "' has a gradient in one of the two only"),
              out);
}

bool judge_windows(const std::vector<Distances>& windows, const Allowed& allowed, Certificate& out) {
  // Of the window in which least differs: what is wrong is wrong in all of them, and one whose rows cancel each other says nothing.
  std::optional<Middle> nearest;
  std::string tensor;
  for (const Distances& window : windows) {
    out.follows = out.follows || any_difference(window);
    const Middle middle = middle_gradient(window);
    if (nearest && nearest->distance <= middle.distance) continue;
    nearest = middle;
    tensor = furthest(TensorsOf::Gradients, window);
  }
  std::vector<const TensorDistance*> of_losses;
  double usual = 0;
  for (const Distances& window : windows)
    if (const auto loss = window.tensors.find("loss"); loss != window.tensors.end() && loss->second.norm > 0) {
      of_losses.push_back(&loss->second);
      usual += loss->second.norm;
    }
  std::vector<double> losses;
  losses.reserve(of_losses.size());
  for (const TensorDistance* loss : of_losses)
    losses.push_back(loss->difference / std::max(loss->norm, usual / static_cast<double>(of_losses.size())));
  bool holds = true;
  if (!losses.empty()) {
    const double middle = middle_of(losses), most = allowed.within_loss.value_or(-1);
    show(middle, {}, most, "", out.loss);
    holds = note(most < 0 || middle <= most, printed("the loss differs by %.2g of its size, %.2g is declared", middle, most), out);
  }
  if (!nearest) return holds;
  const std::string which = windows.size() > 1 ? printed(", in the best of %zu windows,", windows.size()) : "";
  holds = judge_number(TensorsOf::Gradients, nearest->distance, tensor, true, allowed, out, which.c_str()) && holds;
  // A gradient that is not there is as far away as it is large, which a coarse format's is too: the size tells them apart.
  const double off = std::fabs(nearest->size - 1);
  return note(!allowed.within || off <= *allowed.within / 2,
              printed("the middle one of all gradients%s is %.2g times as large, 1 ± %.2g is declared", which.c_str(), nearest->size,
                      allowed.within.value_or(0) / 2),
              out) &&
         holds;
}

}  // namespace galley
