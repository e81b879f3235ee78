// The angles of rotary position embeddings: Su, Lu, Pan, Murtadha, Wen, Liu: "RoFormer", 2021, arXiv:2104.09864, and the ways to stretch
// them to longer texts that models are published with, under the names that their config.json gives them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/check.hpp"

namespace galley::models {

/// Radians a position for each of head_dim / 2 pairs: theta^(−2i / head_dim), then
///   linear    divided by factor (all positions squeezed);
///   llama3    divided by factor where a turn takes more than original_max_position / low_freq_factor positions, kept where it takes less
///             than original_max_position / high_freq_factor, and in between from one to the other;
///   yarn      divided by factor after the pair that turns beta_slow times in original_max_position positions, kept before the one that
///             turns beta_fast times, and in between, pair by pair, from one to the other (Peng, Quesnelle, Fan, Shippole: "YaRN", 2023,
///             arXiv:2309.00071); `truncate`: these two are whole pairs;
///   longrope  each divided by its own of `factors` (Ding et al.: "LongRoPE", 2024, arXiv:2402.13753); with `long_factors` the second half
///             of the table has the angles of these;
///   dynamic   with a larger theta for rows of seq_len > original_max_position positions: theta · (factor · seq_len /
///             original_max_position − (factor − 1))^(head_dim / (head_dim − 2)) ("dynamic NTK").
/// cos and sin are multiplied by `size`: the attribute attention_factor; without it, m(mscale) / m(mscale_all_dim) of yarn with
/// m(s) = 0.1 · s · ln factor + 1, or m(1) where these two are not given, √(1 + ln factor / ln original_max_position) of longrope, else 1.
struct Angles {
  double theta, factor, low, high, original, size = 1;
  double first = 0, last = 0;  ///< of yarn: the pairs between which angles go from kept to divided
  std::vector<double> factors;
  int64_t D;
  enum { plain, linear, llama3, yarn, longrope } type;

  /// `list`: the attribute with the factors of longrope.
  static Angles of(const sdk::Node& n, const char* list = "factors") {
    Angles a;
    a.theta = n.f("theta", 10000);
    a.factor = n.f("factor", 1);
    a.low = n.f("low_freq_factor", 1);
    a.high = n.f("high_freq_factor", 4);
    a.original = n.f("original_max_position", 8192);
    a.D = n.i("head_dim", 0);
    if (a.D <= 0 || a.D % 2) wrong(n, "head_dim = " + std::to_string(a.D) + "; it has to be even and positive");
    if (!(a.factor > 0) || !(a.theta > 0)) wrong(n, "theta and factor have to be positive");
    if (!(a.original > 0)) wrong(n, "original_max_position has to be positive");
    const std::string name = n.s("type", "default");
    if (name == "default") a.type = plain;
    else if (name == "linear") a.type = linear;
    else if (name == "llama3") a.set_llama3(n);
    else if (name == "yarn") a.set_yarn(n);
    else if (name == "longrope") a.set_longrope(n, list);
    else if (name == "dynamic") a.set_dynamic(n);
    else wrong(n, "type = '" + name + "'; known are 'default', 'linear', 'llama3', 'yarn', 'longrope' and 'dynamic'");
    a.size = n.f("attention_factor", a.size);
    if (!(a.size > 0)) wrong(n, "attention_factor = " + std::to_string(a.size) + "; it has to be positive");
    return a;
  }

  double operator()(int64_t pair) const {
    const double f = std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(D));
    if (type == plain) return f;
    if (type == linear) return f / factor;
    if (type == longrope) return f / factors[static_cast<size_t>(pair)];
    if (type == yarn) {
      const double divided = std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
      return f / factor * divided + f * (1 - divided);
    }
    const double wavelength = turn / f;
    if (wavelength < original / high) return f;
    if (wavelength > original / low) return f / factor;
    const double smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * f / factor + smooth * f;
  }

 private:
  static constexpr double turn = 6.283185307179586477;

  void set_llama3(const sdk::Node& n) {
    type = llama3;
    if (!(high > low)) wrong(n, "high_freq_factor has to be larger than low_freq_factor");
  }
  void set_yarn(const sdk::Node& n) {
    type = yarn;
    const double fast = n.f("beta_fast", 32), slow = n.f("beta_slow", 1);
    if (!(slow > 0) || !(fast >= slow)) wrong(n, "beta_slow has to be positive, and beta_fast not less");
    if (!(theta > 1)) wrong(n, "theta has to be above 1");
    // The pair, as a fraction, that turns `turns` times.
    const auto pair = [&](double turns) { return static_cast<double>(D) * std::log(original / (turns * turn)) / (2 * std::log(theta)); };
    const bool whole = n.i("truncate", 1) != 0;
    first = std::max(whole ? std::floor(pair(fast)) : pair(fast), 0.0);
    last = std::min(whole ? std::ceil(pair(slow)) : pair(slow), static_cast<double>(D - 1));
    if (first == last) last += 0.001;
    const auto m = [&](double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; };
    const double scale = n.f("mscale", 0), all = n.f("mscale_all_dim", 0);
    size = scale != 0 && all != 0 ? m(scale) / m(all) : m(1);
  }
  void set_longrope(const sdk::Node& n, const char* called) {
    type = longrope;
    const galley_attr* const list = galley_attr_find(n.view(), called);
    for (uint32_t k = 0; list && k < list->count; ++k)
      factors.push_back(list->type == GALLEY_ATTR_I64 ? static_cast<double>(static_cast<const int64_t*>(list->data)[k])
                                                      : static_cast<const double*>(list->data)[k]);
    if (factors.size() != static_cast<size_t>(D / 2))
      wrong(n, std::to_string(factors.size()) + " numbers in '" + called + "'; there has to be one for each of the " +
                   std::to_string(D / 2) + " pairs");
    for (const double f : factors)
      if (!(f > 0)) wrong(n, std::string("'") + called + "' have to be positive, not " + std::to_string(f));
    if (factor > 1 && original > 1) size = std::sqrt(1 + std::log(factor) / std::log(original));
  }
  void set_dynamic(const sdk::Node& n) {
    type = plain;
    if (D < 4) wrong(n, "head_dim = " + std::to_string(D) + "; it has to be 4 or more");
    const double longer = std::max(n.f("seq_len", 0), original) / original, d = static_cast<double>(D);
    theta *= std::pow(factor * longer - (factor - 1), d / (d - 2));
  }
};

/// The tables that stand one after the other in the output of `rope_table`: body(angles, first row, rows).
template <class Body>
void rope_tables(const sdk::Node& n, const Body& body) {
  const int64_t P = n.i("positions", 0);
  const bool two = galley_attr_find(n.view(), "long_factors") != nullptr;
  if (two && P % 2) wrong(n, "positions = " + std::to_string(P) + "; of two tables it has to be even");
  body(Angles::of(n), int64_t{0}, two ? P / 2 : P);
  if (two) body(Angles::of(n, "long_factors"), P / 2, P / 2);
}

}  // namespace galley::models
