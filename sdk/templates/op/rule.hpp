// The arithmetic of one number, for every device.
//
// With e = exp(x) and w = e (e + 2), tanh(softplus(x)) = tanh(ln(1 + e)) = w / (w + 2): one exponential, no logarithm, and nothing cancels
// where x is far below 0. Where x is 20 or more it is 1 to the last bit, while e² would soon leave what F32 holds: so x is cut off there.
#pragma once

#include <galley/cpp/anywhere.hpp>

#include <cmath>

/// NaN stays NaN.
GALLEY_ANYWHERE float cut_off(float x) { return x > 20.0f ? 20.0f : x; }

struct Mish {
  GALLEY_ANYWHERE float operator()(float x) const {
    const float e = expf(cut_off(x)), w = e * (e + 2.0f);
    return x * (w / (w + 2.0f));
  }
};

/// dx from dy and x: mish'(x) = w / d + 4 x e (1 + e) / d², with d = w + 2.
struct MishGrad {
  GALLEY_ANYWHERE float operator()(float dy, float x) const {
    const float z = cut_off(x), e = expf(z), w = e * (e + 2.0f), d = w + 2.0f;
    return dy * (w / d + z * (4.0f * e * (1.0f + e) / (d * d)));
  }
};
