#include "host/tools/gguf/blocks.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "galley/cpp/half.hpp"

namespace galley {
namespace {

/// Sums are made in lanes, in an order that does not depend on the processor.
constexpr size_t kLanes = 8;

/// Rounds to the nearest integer, ties to even, of a size below 2^22: the sum has no room for a fraction.
float nearest_code(float x) { return (x + 12582912.0f) - 12582912.0f; }
float code_of(float x, float low, float high) {
  x = x < low ? low : x;
  return nearest_code(x > high ? high : x);
}

float sum_of(const float (&lanes)[kLanes]) {
  float out = 0;
  for (const float lane : lanes) out += lane;
  return out;
}

float as_half(float x) {
  sdk::F16 half;
  sdk::from_float(x, half);
  return sdk::to_float(half);
}

void put_half(float x, std::byte* out) {
  sdk::F16 half;
  sdk::from_float(x, half);
  std::memcpy(out, &half.bits, sizeof half.bits);
}

float inverse_of(float x) { return x == 0 ? 0 : 1 / x; }

/// Numbers as d · q, q in [−limit, limit).
struct Scale {
  float d = 0;
  float gain = 0;  ///< what the squared error is less than the sum of the squares
};

/// The best scale for the codes that the scale 1 / inverse gives: with q fixed, the error is least at d = Σ x q / Σ q².
template <size_t N>
Scale scale_for(const float* x, float inverse, float limit) {
  float xq[kLanes] = {}, qq[kLanes] = {};
  for (size_t i = 0; i < N; i += kLanes)
    for (size_t k = 0; k < kLanes; ++k) {
      const float q = code_of(x[i + k] * inverse, -limit, limit - 1);
      xq[k] += x[i + k] * q;
      qq[k] += q * q;
    }
  const float a = sum_of(xq), b = sum_of(qq);
  return b > 0 ? Scale{a / b, a * (a / b)} : Scale{};
}

/// Lets the number of the largest size get codes around the ends of their range, one after the other.
template <size_t N>
float best_scale(const float* x, float limit) {
  float largest = 0;
  for (size_t i = 0; i < N; ++i)
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  if (largest == 0) return 0;
  Scale best;
  for (float code = -limit - 0.5f; code <= -limit + 3; code += 0.25f)
    for (const float c : {code, -code - 1})
      if (const Scale one = scale_for<N>(x, c / largest, limit); one.gain > best.gain) best = one;
  for (int more = 0; more < 3 && best.d != 0; ++more) {
    const Scale one = scale_for<N>(x, 1 / best.d, limit);
    if (!(one.gain > best.gain)) break;
    best = one;
  }
  return best.d;
}

/// The squared error of numbers as d · q.
template <size_t N>
float error_of(const float* x, float d, float limit) {
  const float inverse = inverse_of(d);
  float sum[kLanes] = {};
  for (size_t i = 0; i < N; i += kLanes)
    for (size_t k = 0; k < kLanes; ++k) {
      const float off = x[i + k] - d * code_of(x[i + k] * inverse, -limit, limit - 1);
      sum[k] += off * off;
    }
  return sum_of(sum);
}

void write_q8_0(const float* x, std::byte* out) {
  float largest = 0;
  for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
  const float d = as_half(largest / 127), inverse = inverse_of(d);
  put_half(d, out);
  for (size_t i = 0; i < 32; ++i) out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(code_of(x[i] * inverse, -128, 127)));
}

void write_q4_0(const float* x, std::byte* out) {
  const float d = as_half(best_scale<32>(x, 8)), inverse = inverse_of(d);
  put_half(d, out);
  const auto code = [&](size_t i) { return static_cast<uint8_t>(code_of(x[i] * inverse, -8, 7) + 8); };
  for (size_t i = 0; i < 16; ++i) out[2 + i] = static_cast<std::byte>(code(i) | code(i + 16) << 4);
}

void write_q5_0(const float* x, std::byte* out) {
  const float d = as_half(best_scale<32>(x, 16)), inverse = inverse_of(d);
  put_half(d, out);
  uint32_t fifth = 0;
  uint8_t codes[32];
  for (size_t i = 0; i < 32; ++i) {
    codes[i] = static_cast<uint8_t>(code_of(x[i] * inverse, -16, 15) + 16);
    fifth |= static_cast<uint32_t>(codes[i] >> 4) << i;
  }
  std::memcpy(out + 2, &fifth, sizeof fifth);
  for (size_t i = 0; i < 16; ++i) out[6 + i] = static_cast<std::byte>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

/// The largest scale over the largest code in F16, a little more where rounding it would put the code beyond its range.
float shared_scale(float largest, float code, float beyond) {
  float d = as_half(largest / code);
  for (float c = code; d != 0 && largest / d > beyond && std::fabs(c) > 1; c -= std::copysign(0.5f, c)) d = as_half(largest / c);
  return d;
}

void write_q6_k(const float* x, std::byte* out) {
  float scales[16], largest = 0;
  for (size_t g = 0; g < 16; ++g) {
    scales[g] = best_scale<16>(x + 16 * g, 32);
    if (std::fabs(scales[g]) > std::fabs(largest)) largest = scales[g];
  }
  const float d = shared_scale(largest, -128, 127.4f), inverse = inverse_of(d);
  put_half(d, out + 208);
  std::memset(out, 0, 192);
  for (size_t g = 0; g < 16; ++g) {
    const float* of_group = x + 16 * g;
    const float rounded = code_of(scales[g] * inverse, -128, 127);
    float best = rounded, least = error_of<16>(of_group, d * rounded, 32);
    for (const float s : {rounded - 1, rounded + 1}) {
      if (s < -128 || s > 127) continue;
      if (const float error = error_of<16>(of_group, d * s, 32); error < least) best = s, least = error;
    }
    out[192 + g] = static_cast<std::byte>(static_cast<int8_t>(best));
    const float by = inverse_of(d * best);
    for (size_t k = 0; k < 16; ++k) {
      const auto q = static_cast<uint8_t>(code_of(of_group[k] * by, -32, 31) + 32);
      const size_t part = g / 8, within = g % 8 * 16 + k;
      out[part * 64 + within % 64] |= static_cast<std::byte>((q & 15) << 4 * (within / 64));
      out[128 + part * 32 + within % 32] |= static_cast<std::byte>((q >> 4) << 2 * (within / 32));
    }
  }
}

/// Numbers as scale · q − least, q in 0 … 15 and least ≥ 0.
struct Line {
  float scale = 0, least = 0;
  float gain = -INFINITY;  ///< what the squared error is less than the sum of the squares
};

/// The best line for the codes of (x + least) · inverse: with q fixed, least squares.
Line line_for(const float* x, float least, float inverse) {
  float lanes[4][kLanes] = {};
  for (size_t i = 0; i < 32; i += kLanes)
    for (size_t k = 0; k < kLanes; ++k) {
      const float v = x[i + k], q = code_of((v + least) * inverse, 0, 15);
      lanes[0][k] += v;
      lanes[1][k] += q;
      lanes[2][k] += v * q;
      lanes[3][k] += q * q;
    }
  const float sx = sum_of(lanes[0]), sq = sum_of(lanes[1]), xq = sum_of(lanes[2]), qq = sum_of(lanes[3]);
  const float determinant = 32 * qq - sq * sq;
  Line out;
  if (determinant > 0) {
    out.scale = (32 * xq - sq * sx) / determinant;
    out.least = (out.scale * sq - sx) / 32;
  }
  if (determinant <= 0 || out.least < 0 || out.scale <= 0) {
    out.least = 0;
    out.scale = qq > 0 && xq > 0 ? xq / qq : 0;
  }
  const float s = out.scale, m = out.least;
  out.gain = 2 * s * xq - 2 * m * sx - s * s * qq + 2 * s * m * sq - 32 * m * m;
  return out;
}

Line best_line(const float* x) {
  float low = 0, high = x[0];
  for (size_t i = 0; i < 32; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  if (high <= low) return {0, -low, 0};  // all the same and not above 0
  Line best;
  for (float codes = 13; codes <= 17.5f; codes += 0.25f)
    if (const Line one = line_for(x, -low, codes / (high - low)); one.gain > best.gain) best = one;
  for (int more = 0; more < 4 && best.scale > 0; ++more) {
    const Line one = line_for(x, best.least, 1 / best.scale);
    if (!(one.gain > best.gain)) break;
    best = one;
  }
  return best;
}

/// The squared error of numbers as scale · q − least.
float error_on_line(const float* x, float scale, float least) {
  const float inverse = inverse_of(scale);
  float sum[kLanes] = {};
  for (size_t i = 0; i < 32; i += kLanes)
    for (size_t k = 0; k < kLanes; ++k) {
      const float off = x[i + k] + least - scale * code_of((x[i + k] + least) * inverse, 0, 15);
      sum[k] += off * off;
    }
  return sum_of(sum);
}

void write_q4_k(const float* x, std::byte* out) {
  Line lines[8];
  float scale = 0, least = 0;
  for (size_t g = 0; g < 8; ++g) {
    lines[g] = best_line(x + 32 * g);
    scale = std::max(scale, lines[g].scale);
    least = std::max(least, lines[g].least);
  }
  const float d = shared_scale(scale, 63, 63.4f), m = shared_scale(least, 63, 63.4f), by_d = inverse_of(d), by_m = inverse_of(m);
  put_half(d, out);
  put_half(m, out + 2);
  uint8_t s[8], t[8];
  for (size_t g = 0; g < 8; ++g) {
    const float a = code_of(lines[g].scale * by_d, 0, 63), b = code_of(lines[g].least * by_m, 0, 63);
    // Of very small numbers F16 has no scale, and nothing may be nearest.
    s[g] = t[g] = 0;
    float smallest = error_on_line(x + 32 * g, 0, 0);
    for (float i = std::max(0.0f, a - 1); i <= std::min(63.0f, a + 1); ++i)
      for (float k = std::max(0.0f, b - 1); k <= std::min(63.0f, b + 1); ++k)
        if (const float error = error_on_line(x + 32 * g, d * i, m * k); error < smallest)
          smallest = error, s[g] = static_cast<uint8_t>(i), t[g] = static_cast<uint8_t>(k);
  }
  for (size_t j = 0; j < 4; ++j) {
    out[4 + j] = static_cast<std::byte>(s[j] | s[j + 4] >> 4 << 6);
    out[8 + j] = static_cast<std::byte>(t[j] | t[j + 4] >> 4 << 6);
    out[12 + j] = static_cast<std::byte>((s[j + 4] & 15) | (t[j + 4] & 15) << 4);
  }
  const auto code = [&](size_t g, size_t i) {
    return static_cast<uint8_t>(code_of((x[32 * g + i] + m * t[g]) * inverse_of(d * s[g]), 0, 15));
  };
  for (size_t pair = 0; pair < 4; ++pair)
    for (size_t i = 0; i < 32; ++i) out[16 + 32 * pair + i] = static_cast<std::byte>(code(2 * pair, i) | code(2 * pair + 1, i) << 4);
}

}  // namespace

void write_blocks(tensor_files::Dtype dtype, std::span<const float> numbers, std::byte* out) {
  using tensor_files::Dtype;
  const size_t block = tensor_files::numbers_of(dtype), bytes = tensor_files::size_of(dtype);
  assert(numbers.size() % block == 0);
  for (size_t at = 0; at < numbers.size(); at += block, out += bytes) {
    const float* x = numbers.data() + at;
    switch (dtype) {
      case Dtype::Q8_0: write_q8_0(x, out); break;
      case Dtype::Q5_0: write_q5_0(x, out); break;
      case Dtype::Q4_0: write_q4_0(x, out); break;
      case Dtype::Q6_K: write_q6_k(x, out); break;
      case Dtype::Q4_K: write_q4_k(x, out); break;
      default: assert(!"a type that is not written"); return;
    }
  }
}

}  // namespace galley
