#include "host/base/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "host/base/json.hpp"

namespace galley {
namespace {

double fall_of_cosine(double t) { return 0.5 * (1 + std::cos(std::numbers::pi * t)); }

/// 1 at the begin of the decay, 0 after its end.
double share_of(Curve::Decay decay, double u) {
  switch (decay) {
    case Curve::Decay::Cosine: return fall_of_cosine(u);
    case Curve::Decay::Linear: return 1 - u;
    case Curve::Decay::OneMinusSqrt: return 1 - std::sqrt(u);
  }
  return 0;
}

std::string text_of(const Curve& curve) {
  std::string out = std::string(name_of(curve.shape)) + "{peak=" + to_json(Value(curve.peak));
  const auto add = [&](const char* name, const Span& span) {
    const bool whole = std::floor(span.value) == span.value;
    if (span.value > 0)
      out += std::string(", ") + name + "=" + to_json(whole ? Value(static_cast<int64_t>(span.value)) : Value(span.value));
  };
  add("warmup", curve.warmup);
  if (curve.shape == Curve::Shape::Wsd) {
    add("decay", curve.decay);
    out += std::string(", decay_type=") + name_of(curve.decay_type);
  }
  if (curve.floor != 0) out += ", floor=" + to_json(Value(curve.floor));
  if (curve.timescale > 0) out += ", timescale=" + std::to_string(curve.timescale);
  return out + "}";
}

}  // namespace

int64_t Span::of(int64_t steps) const { return static_cast<int64_t>(std::ceil(value < 1 ? value * static_cast<double>(steps) : value)); }

const char* name_of(Curve::Shape shape) {
  static constexpr const char* names[] = {"cosine", "linear", "constant_with_warmup", "wsd", "inverse_sqrt"};
  return names[static_cast<size_t>(shape)];
}

const char* name_of(Curve::Decay decay) {
  static constexpr const char* names[] = {"cosine", "linear", "1-sqrt"};
  return names[static_cast<size_t>(decay)];
}

Schedule tabulate(const Curve& curve, int64_t steps) {
  const int64_t warmup = curve.warmup.of(steps), decay = std::min(curve.decay.of(steps), std::max<int64_t>(0, steps - warmup));
  const auto timescale = static_cast<double>(curve.timescale > 0 ? curve.timescale : warmup > 0 ? warmup : 10'000);
  const auto fall = [&](int64_t i) {
    const double t = static_cast<double>(i - warmup) / static_cast<double>(steps - warmup);
    switch (curve.shape) {
      case Curve::Shape::Cosine: return fall_of_cosine(t);
      case Curve::Shape::Linear: return 1 - t;
      case Curve::Shape::Wsd:
        return i < steps - decay ? 1 : share_of(curve.decay_type, static_cast<double>(i - (steps - decay)) / static_cast<double>(decay));
      case Curve::Shape::InverseSqrt: return 1 / std::sqrt((static_cast<double>(i - warmup) + timescale) / timescale);
      case Curve::Shape::ConstantWithWarmup: break;
    }
    return 1.0;
  };
  Schedule schedule;
  schedule.text = text_of(curve);
  schedule.table.reserve(static_cast<size_t>(steps));
  for (int64_t i = 0; i < steps; ++i)
    schedule.table.push_back(i < warmup ? curve.peak * (static_cast<double>(i + 1) / (static_cast<double>(warmup) + 1))
                                        : curve.floor + (curve.peak - curve.floor) * fall(i));
  return schedule;
}

Schedule constant(double value) { return {"constant(" + to_json(Value(value)) + ")", {value}}; }

}  // namespace galley
