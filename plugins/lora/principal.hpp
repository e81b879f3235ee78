// The largest singular values of a matrix and their vectors, by products with vectors alone, in double.
//
// Exact: Golub, Kahan: "Calculating the singular values and pseudo-inverse of a matrix", SIAM Journal on Numerical Analysis 2(2), 1965; as
// a Lanczos process whose vectors are all kept orthogonal, until the largest values no longer change. Fast: Halko, Martinsson, Tropp:
// "Finding structure with randomness", SIAM Review 53(2), 2011, with as many vectors as values and a number of iterations, as
// torch.svd_lowrank has it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "galley/cpp/node.hpp"

namespace galley::lora {

/// A matrix of so many rows and columns, in double.
struct Dense {
  Dense(int64_t rows_, int64_t columns_) : rows(rows_), columns(columns_), numbers(static_cast<size_t>(rows_ * columns_)) {}
  double* row(int64_t i) { return numbers.data() + i * columns; }
  const double* row(int64_t i) const { return numbers.data() + i * columns; }
  void grow(int64_t rows_) {
    rows = rows_;
    numbers.resize(static_cast<size_t>(rows * columns));
  }
  int64_t rows, columns;
  std::vector<double> numbers;
};

/// Multiplies by W or by its transpose, whatever the type of W's numbers.
class Factor {
 public:
  virtual ~Factor() = default;
  int64_t out = 0, in = 0;  ///< rows and columns of W
  /// y (out) = W·x (in), and y (in) = Wᵀ·x (out).
  virtual void times(const double* x, double* y) const = 0;
  virtual void transposed_times(const double* x, double* y) const = 0;
};

/// Wᵀ of a W.
class Turned : public Factor {
 public:
  explicit Turned(const Factor& w) : w_(w) { out = w.in, in = w.out; }
  void times(const double* x, double* y) const override { w_.transposed_times(x, y); }
  void transposed_times(const double* x, double* y) const override { w_.times(x, y); }

 private:
  const Factor& w_;
};

/// The first `rank` singular values, from the largest on, their left vectors as rows of (rank, out), and their right ones of (rank, in).
struct Principal {
  std::vector<double> values;
  Dense left, right;
};

/// The first `rank` columns of Q and rows of R of W = Q·R: `q` as rows (rank, out), `r` (rank, in).
struct Orthogonal {
  Dense q, r;
};

namespace detail {

inline double dot(const double* x, const double* y, int64_t n) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t k = 0; k < 8; ++k) sums[k] += x[i + k] * y[i + k];
  for (int64_t k = 0; i + k < n; ++k) sums[k] += x[i + k] * y[i + k];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

inline void subtract(double* x, double factor, const double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] -= factor * y[i];
}

inline double normalize(double* x, int64_t n) {
  const double length = std::sqrt(dot(x, x, n));
  if (!std::isfinite(length)) sdk::invalid("a weight that an adapter is to begin with has numbers that are not finite");
  if (length > 0)
    for (int64_t i = 0; i < n; ++i) x[i] /= length;
  return length;
}

/// Makes x orthogonal to the first `count` rows; twice, which is enough in any case (Kahan).
inline void orthogonalize(double* x, const Dense& rows, int64_t count) {
  for (int again = 0; again < 2; ++again)
    for (int64_t i = 0; i < count; ++i) subtract(x, dot(rows.row(i), x, rows.columns), rows.row(i), rows.columns);
}

/// A direction that does not depend on anything but its number.
inline void any_direction(double* x, int64_t n, uint64_t stream) {
  uint64_t state = stream * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull;
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;  // of twelve uniform numbers: near enough to a normal one
    for (int k = 0; k < 12; ++k) {
      state += 0x9E3779B97F4A7C15ull;
      uint64_t z = state;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
      sum += static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
    }
    x[i] = sum - 6;
  }
}

/// Makes row `count` of a basis: `x` orthogonal to the rows before it, or where nothing is left of it, any direction that is. Returns how
/// long it was.
inline double extend(Dense& basis, int64_t count, const double* x, double scale) {
  double* const to = basis.row(count);
  std::copy_n(x, basis.columns, to);
  orthogonalize(to, basis, count);
  const double length = normalize(to, basis.columns);
  if (length > 1e-13 * scale) return length;
  for (uint64_t tries = 0; count < basis.columns; ++tries) {
    any_direction(to, basis.columns, static_cast<uint64_t>(count) + (tries << 32) + 1);
    normalize(to, basis.columns);
    orthogonalize(to, basis, count);
    if (normalize(to, basis.columns) > 1e-6) break;
  }
  return 0;
}

/// Eigenvalues of a symmetric tridiagonal matrix, and its vectors as columns of `z`, which begins as the identity: implicit QL (Bowdler,
/// Martin, Reinsch, Wilkinson: "The QR and QL algorithms for symmetric matrices", Numerische Mathematik 11, 1968). `e`: the entries beside
/// the diagonal `d`, one less.
inline void eigen(std::vector<double>& d, std::vector<double> e, Dense& z) {
  const auto n = static_cast<int64_t>(d.size());
  e.push_back(0);
  for (int64_t l = 0; l < n; ++l)
    for (int turns = 0; turns < 60; ++turns) {
      int64_t m = l;
      while (m + 1 < n && std::abs(e[m]) > 1e-16 * (std::abs(d[m]) + std::abs(d[m + 1]))) ++m;
      if (m == l) break;
      double g = (d[l + 1] - d[l]) / (2 * e[l]), r = std::hypot(g, 1.0);
      g = d[m] - d[l] + e[l] / (g + std::copysign(r, g));
      double s = 1, c = 1, p = 0;
      int64_t i = m - 1;
      for (; i >= l; --i) {
        double f = s * e[i];
        const double b = c * e[i];
        r = std::hypot(f, g);
        e[i + 1] = r;
        if (r == 0) {
          d[i + 1] -= p;
          e[m] = 0;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        // Vectors lie in rows here, so that two of them are turned at a time.
        double *const below = z.row(i + 1), *const here = z.row(i);
        for (int64_t k = 0; k < n; ++k) {
          f = below[k];
          below[k] = s * here[k] + c * f;
          here[k] = c * here[k] - s * f;
        }
      }
      if (r == 0 && i >= l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
}

inline std::vector<int64_t> descending(const std::vector<double>& values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  return order;
}

/// x·(rows of `basis`), for a vector of so many numbers as there are rows.
inline void combine(const double* x, const Dense& basis, int64_t count, double* to) {
  std::fill_n(to, basis.columns, 0.0);
  for (int64_t i = 0; i < count; ++i) subtract(to, -x[i], basis.row(i), basis.columns);
}

/// One sign of the two: the largest number of the right vector is positive.
inline void fix_signs(Principal& p) {
  for (int64_t i = 0; i < p.right.rows; ++i) {
    double* const v = p.right.row(i);
    const double largest = *std::max_element(v, v + p.right.columns, [](double a, double b) { return std::abs(a) < std::abs(b); });
    if (largest >= 0) continue;
    for (int64_t k = 0; k < p.right.columns; ++k) v[k] = -v[k];
    for (int64_t k = 0; k < p.left.columns; ++k) p.left.row(i)[k] = -p.left.row(i)[k];
  }
}

/// The Lanczos process, of a W that has no fewer rows than columns. Its vectors v then fill their space after w.in steps, and nothing is left
/// over; those of a wide W would go on outside of what W reads, and the values of its first rows alone are others.
inline Principal lanczos(const Factor& w, int64_t rank) {
  const int64_t most = w.in;
  Dense u(0, w.out), v(0, w.in);
  const auto room = [&](int64_t count) {
    u.grow(count);
    v.grow(std::min(most, count + 1));
  };
  int64_t next = std::min(most, rank + 32);
  room(next);
  std::vector<double> alpha, beta, x(static_cast<size_t>(std::max(w.out, w.in)));
  any_direction(x.data(), w.in, 1);
  extend(v, 0, x.data(), 0);
  double largest = 0;
  for (int64_t count = 1;; ++count) {
    // W·v_k = β_(k−1) u_(k−1) + α_k u_k
    w.times(v.row(count - 1), x.data());
    alpha.push_back(extend(u, count - 1, x.data(), largest));
    largest = std::max(largest, alpha.back());
    double left_over = 0;
    if (count < most) {
      // Wᵀ·u_k = α_k v_k + β_k v_(k+1)
      w.transposed_times(u.row(count - 1), x.data());
      left_over = extend(v, count, x.data(), largest);
      largest = std::max(largest, left_over);
    }
    if (count == next) {
      std::vector<double> d(static_cast<size_t>(count)), e(static_cast<size_t>(count - 1));
      for (int64_t i = 0; i < count; ++i) d[i] = alpha[i] * alpha[i] + (i ? beta[i - 1] * beta[i - 1] : 0);
      for (int64_t i = 0; i + 1 < count; ++i) e[i] = alpha[i] * beta[i];
      Dense z(count, count);
      for (int64_t i = 0; i < count; ++i) z.row(i)[i] = 1;
      eigen(d, e, z);
      const std::vector<int64_t> order = descending(d);
      Principal out = {{}, Dense(rank, w.out), Dense(rank, w.in)};
      bool done = true;
      for (int64_t i = 0; i < rank; ++i) {
        const double* const y = z.row(order[i]);
        const double value = std::sqrt(std::max(d[order[i]], 0.0));
        std::vector<double> left(static_cast<size_t>(count));  // B·y / σ, B with α on the diagonal and β beside it
        for (int64_t k = 0; k < count; ++k)
          left[k] = (alpha[k] * y[k] + (k + 1 < count ? beta[k] * y[k + 1] : 0)) / (value > 0 ? value : 1);
        done = done && left_over * std::abs(left.back()) <= 1e-10 * largest;
        out.values.push_back(value);
        combine(left.data(), u, count, out.left.row(i));
        combine(y, v, count, out.right.row(i));
      }
      if (done || count == most) {
        return out;
      }
      next = std::min(most, count + count / 2 + 1);
      room(next);
    }
    beta.push_back(left_over);
  }
}

}  // namespace detail

/// Throws sdk::Failure if W holds what is no number.
inline Principal principal(const Factor& w, int64_t rank) {
  const bool wide = w.out < w.in;
  Principal out = wide ? detail::lanczos(Turned(w), rank) : detail::lanczos(w, rank);
  if (wide) std::swap(out.left, out.right);
  detail::fix_signs(out);
  return out;
}

inline Principal principal_fast(const Factor& w, int64_t rank, int64_t iterations, uint64_t stream) {
  Dense right(rank, w.in), left(rank, w.out);
  std::vector<double> x(static_cast<size_t>(std::max(w.out, w.in)));
  for (int64_t i = 0; i < rank; ++i) detail::any_direction(right.row(i), w.in, stream + static_cast<uint64_t>(i));
  const auto to_left = [&] {
    for (int64_t i = 0; i < rank; ++i) {
      w.times(right.row(i), x.data());
      detail::extend(left, i, x.data(), 1e-300);
    }
  };
  const auto to_right = [&] {
    for (int64_t i = 0; i < rank; ++i) {
      w.transposed_times(left.row(i), x.data());
      detail::extend(right, i, x.data(), 1e-300);
    }
  };
  to_left();
  for (int64_t i = 0; i < iterations; ++i) {
    to_right();
    to_left();
  }
  // Qᵀ·W has `rank` rows: its own singular vectors by rotations that make these rows orthogonal (Hestenes, 1958).
  for (int64_t i = 0; i < rank; ++i) w.transposed_times(left.row(i), right.row(i));
  const auto rotate = [](double* a, double* b, int64_t n, double c, double s) {
    for (int64_t k = 0; k < n; ++k) {
      const double first = a[k], second = b[k];
      a[k] = c * first - s * second;
      b[k] = s * first + c * second;
    }
  };
  for (int sweep = 0; sweep < 60; ++sweep) {
    double worst = 0;
    for (int64_t p = 0; p < rank; ++p)
      for (int64_t q = p + 1; q < rank; ++q) {
        double *const a = right.row(p), *const b = right.row(q);
        const double aa = detail::dot(a, a, w.in), bb = detail::dot(b, b, w.in), ab = detail::dot(a, b, w.in);
        if (ab == 0 || std::abs(ab) < 1e-15 * std::sqrt(aa * bb)) continue;
        worst = std::max(worst, std::abs(ab) / std::sqrt(aa * bb));
        const double zeta = (bb - aa) / (2 * ab), t = (zeta < 0 ? -1 : 1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        rotate(a, b, w.in, c, s);
        rotate(left.row(p), left.row(q), w.out, c, s);
      }
    if (worst < 1e-13) break;
  }
  std::vector<double> values;
  for (int64_t i = 0; i < rank; ++i) values.push_back(detail::normalize(right.row(i), w.in));
  Principal out = {{}, Dense(rank, w.out), Dense(rank, w.in)};
  const std::vector<int64_t> order = detail::descending(values);
  for (int64_t i = 0; i < rank; ++i) {
    out.values.push_back(values[order[i]]);
    std::copy_n(left.row(order[i]), w.out, out.left.row(i));
    std::copy_n(right.row(order[i]), w.in, out.right.row(i));
  }
  detail::fix_signs(out);
  return out;
}

inline Orthogonal orthogonal(const Factor& w, int64_t rank) {
  Orthogonal out = {Dense(rank, w.out), Dense(rank, w.in)};
  std::vector<double> unit(static_cast<size_t>(w.in)), column(static_cast<size_t>(w.out));
  for (int64_t i = 0; i < rank; ++i) {
    unit[i] = 1;
    w.times(unit.data(), column.data());
    unit[i] = 0;
    detail::extend(out.q, i, column.data(), 1e-300);
    w.transposed_times(out.q.row(i), out.r.row(i));
    std::fill_n(out.r.row(i), i, 0.0);  // but for rounding, they are
  }
  return out;
}

}  // namespace galley::lora
