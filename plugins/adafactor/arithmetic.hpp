// What Adafactor's kernels for all devices have in common (plugin.cpp has the equations): inputs, constants, and what becomes of sums.
#pragma once

#include <cmath>

#include "galley/cpp/anywhere.hpp"
#include "galley/cpp/rule.hpp"

namespace galley::adafactor {

/// Inputs of adafactor_moments: parameter, gradient, rate, applied step, gradient factor and apply as every step (sdk::StepInput), then
/// these. With `kColumns`, the second moment is factored.
enum MomentsInput : uint32_t { kRows = sdk::kStepStates, kColumns, kLr };

/// Inputs of adafactor_step. kScale: what adafactor_moments has made.
enum ApplyInput : uint32_t { kParameter, kGradient, kScale, kFactor, kApply, kSquares, kColumnSquares, kMean };

/// A matrix, or any other tensor as one whose second moment is of the tensor's shape. A block is `rows_of_block` rows; there are at most
/// 64, by shape alone. The last row of what is no matrix may be short.
struct Matrix {
  int64_t rows, columns, count, rows_of_block;

  /// `width`: the columns of what is no matrix.
  Matrix(const galley_operand& parameter, bool factored, int64_t width) : count(sdk::count(parameter)) {
    columns = factored ? sdk::columns(parameter) : width;
    rows = (count + columns - 1) / columns;
    rows_of_block = rows <= 64 * 64 ? 64 : (rows + 63) / 64;
  }
  GALLEY_ANYWHERE int64_t blocks() const { return (rows + rows_of_block - 1) / rows_of_block; }
  GALLEY_ANYWHERE int64_t end_of(int64_t block) const {
    const int64_t end = (block + 1) * rows_of_block;
    return end < rows ? end : rows;
  }
};

/// The attributes of adafactor_moments.
struct Constants {
  double decay_rate, eps_square, eps_scale, threshold, weight_decay;
  int32_t relative, scaled, warmup;

  explicit Constants(const sdk::Node& node)
      : decay_rate(node.f("decay_rate", -0.8)),
        eps_square(node.f("eps_square", 1e-30)),
        eps_scale(node.f("eps_scale", 1e-3)),
        threshold(node.f("clip_threshold", 1)),
        weight_decay(node.f("weight_decay", 0)),
        relative(node.i("relative_step", 1) != 0),
        scaled(node.i("scale_parameter", 1) != 0),
        warmup(node.i("warmup_init", 0) != 0) {}

  /// 1 − β₂: the share of this step's squares.
  GALLEY_ANYWHERE double share(int64_t step) const { return pow(static_cast<double>(step), decay_rate); }
  /// The learning rate. `rate` is `lr` times a factor of the parameter's own.
  GALLEY_ANYWHERE double rho(double lr, double rate, int64_t step) const {
    if (!relative) return rate;
    const auto t = static_cast<double>(step);
    double most = 1 / sqrt(t);
    if (warmup && 1e-6 * t < most) most = 1e-6 * t;
    return lr > most ? rate * (most / lr) : rate;
  }
  /// `out`: by which u / √(mean of the rows) is multiplied, and by which the parameter. `update`: Σ of the squares of the former;
  /// `parameter`: Σ p²; `row_mean`: the mean of the rows' second moments, 1 where they are not factored.
  GALLEY_ANYWHERE void finish(double rho, double update, double parameter, double row_mean, int64_t count, float* out) const {
    const double n = static_cast<double>(count), rms = sqrt(row_mean * update / n) / threshold, size = sqrt(parameter / n);
    const double alpha = scaled ? rho * (size > eps_scale ? size : eps_scale) : rho;
    out[0] = static_cast<float>(alpha * sqrt(row_mean) / (rms > 1 ? rms : 1));
    out[1] = static_cast<float>(1 - weight_decay * alpha);
  }
};

/// One element of adafactor_step. u: gradient over the root of its estimated square.
struct Apply {
  float keep_mean, new_mean;  // β₁, 1 − β₁

  explicit Apply(const sdk::Node& node)
      : keep_mean(static_cast<float>(node.f("beta1", 0.9))), new_mean(static_cast<float>(1 - node.f("beta1", 0.9))) {}

  template <bool has_mean>
  GALLEY_ANYWHERE void element(const float* scale, float u, float& p, float& mean) const {
    float d = scale[0] * u;
    if (has_mean) d = mean = keep_mean * mean + new_mean * d;
    p = p * scale[1] - d;
  }
};

inline void check_dtypes(const sdk::Node& node, uint32_t gradient) {
  const uint32_t g = node.in(gradient).dtype;
  if (g != GALLEY_F32 && !sdk::detail::is_16_bit(g)) sdk::unsupported("dtypes");
}

}  // namespace galley::adafactor
