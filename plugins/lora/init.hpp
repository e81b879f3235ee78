// What `lora_principal` computes, in F32 as a kernel and in double as the op's reference.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "galley/cpp/half.hpp"
#include "galley/cpp/plugin.hpp"
#include "principal.hpp"

namespace galley::lora {

/// A weight (out, in), or where `transposed` (in, out), in numbers of type T. Products are cut into blocks of rows by shape alone.
template <class T>
class Weight : public Factor {
 public:
  Weight(const T* numbers, int64_t out_, int64_t in_, bool transposed) : numbers_(numbers), transposed_(transposed) {
    out = out_, in = in_;
  }
  void times(const double* x, double* y) const override { transposed_ ? by_columns(x, y) : by_rows(x, y); }
  void transposed_times(const double* x, double* y) const override { transposed_ ? by_rows(x, y) : by_columns(x, y); }

 private:
  static double number(double x) { return x; }
  template <class N>
  static double number(N x) {
    return static_cast<double>(sdk::to_float(x));
  }
  int64_t rows() const { return transposed_ ? in : out; }
  int64_t columns() const { return transposed_ ? out : in; }
  /// body(first, last) for blocks of `size` of `n`; reference functions run without a host.
  template <class Body>
  static void blocks(int64_t n, int64_t size, const Body& body) {
    const auto one = [&](int64_t block) { body(block * size, std::min(n, (block + 1) * size)); };
    if (sdk::host()) return sdk::parallel((n + size - 1) / size, one);
    for (int64_t block = 0; block * size < n; ++block) one(block);
  }
  void by_rows(const double* x, double* y) const {
    const int64_t C = columns();
    blocks(rows(), 32, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const T* const row = numbers_ + r * C;
        double sums[16] = {}, sum = 0;
        int64_t c = 0;
        for (; c + 16 <= C; c += 16)
          for (int64_t k = 0; k < 16; ++k) sums[k] += number(row[c + k]) * x[c + k];
        for (; c < C; ++c) sum += number(row[c]) * x[c];
        for (const double s : sums) sum += s;
        y[r] = sum;
      }
    });
  }
  void by_columns(const double* x, double* y) const {
    const int64_t R = rows(), C = columns();
    blocks(C, 128, [&](int64_t first, int64_t last) {
      std::fill(y + first, y + last, 0.0);
      for (int64_t r = 0; r < R; ++r) {
        const T* const row = numbers_ + r * C;
        const double factor = x[r];
        for (int64_t c = first; c < last; ++c) y[c] += factor * number(row[c]);
      }
    });
  }

  const T* numbers_;
  bool transposed_;
};

/// What is left of a weight after another one.
class Rest : public Factor {
 public:
  Rest(const Factor& weight, const Factor& less) : weight_(weight), less_(less) { out = weight.out, in = weight.in; }
  void times(const double* x, double* y) const override { subtract(x, y, out, &Factor::times); }
  void transposed_times(const double* x, double* y) const override { subtract(x, y, in, &Factor::transposed_times); }

 private:
  using Times = void (Factor::*)(const double*, double*) const;
  void subtract(const double* x, double* y, int64_t n, Times product) const {
    std::vector<double> less(static_cast<size_t>(n));
    (weight_.*product)(x, y);
    (less_.*product)(x, less.data());
    for (int64_t i = 0; i < n; ++i) y[i] -= less[static_cast<size_t>(i)];
  }
  const Factor &weight_, &less_;
};

/// B (out, rank) and A (rank, in).
template <class Real>
void begin(const sdk::Node& node, const Factor& w, Real* b, Real* a) {
  const int64_t rank = node.i("rank", 0), iterations = node.i("iterations", 0);
  const auto put = [&](const Dense& left, const Dense& right, int64_t i, double of_left, double of_right) {
    for (int64_t k = 0; k < w.out; ++k) b[k * rank + i] = static_cast<Real>(of_left * left.row(i)[k]);
    for (int64_t k = 0; k < w.in; ++k) a[i * w.in + k] = static_cast<Real>(of_right * right.row(i)[k]);
  };
  if (node.s("how", "svd") == "qr") {
    const Orthogonal made = orthogonal(w, rank);
    for (int64_t i = 0; i < rank; ++i) put(made.q, made.r, i, 1, 1);
    return;
  }
  const Principal made = iterations > 0 ? principal_fast(w, rank, iterations, node.stream()) : principal(w, rank);
  for (int64_t i = 0; i < rank; ++i) {
    const double root = std::sqrt(made.values[static_cast<size_t>(i)] / node.f("scale", 1));
    put(made.left, made.right, i, root, root);
  }
}

}  // namespace galley::lora
