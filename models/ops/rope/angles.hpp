// The angles of rotary position embeddings: Su, Lu, Pan, Murtadha, Wen, Liu: "RoFormer", 2021, arXiv:2104.09864, and the ways to stretch
// them to longer texts that models are published with, under the names that their config.json gives them.
#pragma once

#include <cmath>

#include "ops/check.hpp"

namespace galley::models {

/// Radians a position for each of head_dim / 2 pairs: theta^(−2i / head_dim), then
///   linear   divided by factor (all positions squeezed);
///   llama3   divided by factor where a turn takes more than original_max_position / low_freq_factor positions, kept where it takes less
/// than
///            original_max_position / high_freq_factor, and in between from one to the other.
struct Angles {
  double theta, factor, low, high, original;
  int64_t D;
  enum { plain, linear, llama3 } type;

  static Angles of(const sdk::Node& n) {
    Angles a;
    a.theta = n.f("theta", 10000);
    a.factor = n.f("factor", 1);
    a.low = n.f("low_freq_factor", 1);
    a.high = n.f("high_freq_factor", 4);
    a.original = n.f("original_max_position", 8192);
    a.D = n.i("head_dim", 0);
    const std::string name = n.s("type", "default");
    if (name == "default") a.type = plain;
    else if (name == "linear") a.type = linear;
    else if (name == "llama3") a.type = llama3;
    else wrong(n, "type = '" + name + "'; known are 'default', 'linear' and 'llama3'");
    if (a.D <= 0 || a.D % 2) wrong(n, "head_dim = " + std::to_string(a.D) + "; it has to be even and positive");
    if (!(a.factor > 0) || !(a.theta > 0)) wrong(n, "theta and factor have to be positive");
    if (a.type == llama3 && !(a.high > a.low)) wrong(n, "high_freq_factor has to be larger than low_freq_factor");
    return a;
  }

  double operator()(int64_t pair) const {
    const double f = std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(D));
    if (type == plain) return f;
    if (type == linear) return f / factor;
    const double wavelength = 6.283185307179586477 / f;
    if (wavelength < original / high) return f;
    if (wavelength > original / low) return f / factor;
    const double smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * f / factor + smooth * f;
  }
};

}  // namespace galley::models
