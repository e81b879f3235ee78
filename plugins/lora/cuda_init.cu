// lora_principal on CUDA: principal.hpp's decompositions by one block of threads, in double, once a run for each weight. W is read some
// hundred times, at what one multiprocessor gets of the memory: seconds for a large weight. Vectors of the Lanczos process that there is no
// room for are not made: what is found then is what the others give.
#include <algorithm>
#include <utility>

#include "galley/cuda/kernel.hpp"
#include "galley/cuda/reduce.hpp"

namespace {

using namespace galley::cuda;

constexpr int kThreads = 256, kWarps = kThreads / kWarpSize;

struct Task {
  Reader w;
  const float* less;  // of the shape of w; null: none
  float *b, *a;
  double* memory;
  int64_t out, in, rank, iterations, steps;
  uint64_t stream;
  double scale;
  int transposed, qr;
  int turned;  // out, in and transposed are those of Wᵀ, and left vectors are W's right ones
};

/// Where things lie in the workspace, in doubles.
struct Places {
  int64_t u, v, left, right, x, alpha, beta, d, e, c, s, z, order, end;
  __host__ __device__ explicit Places(const Task& t) {
    const int64_t wide = t.out > t.in ? t.out : t.in;
    int64_t at = 0;
    const auto take = [&](int64_t count) {
      const int64_t begin = at;
      at += count;
      return begin;
    };
    u = take(t.steps * t.out);
    v = take(t.steps * t.in);
    left = take(t.rank * t.out);
    right = take(t.rank * t.in);
    x = take(wide);
    alpha = take(t.steps);
    beta = take(t.steps);
    d = take(t.steps + t.rank);
    e = take(t.steps + 1);
    c = take(t.steps + 1);
    s = take(t.steps + 1);
    z = take(t.steps * t.steps);
    order = take(t.steps + t.rank);
    end = at;
  }
};

class Work {
 public:
  __device__ explicit Work(const Task& task) : t(task), at(task), thread(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    if (t.qr) factorize();
    else if (t.iterations > 0) iterate();
    else lanczos();
  }

 private:
  __device__ double* u(int64_t i) const { return t.memory + at.u + i * t.out; }
  __device__ double* v(int64_t i) const { return t.memory + at.v + i * t.in; }
  __device__ double* left(int64_t i) const { return t.memory + at.left + i * t.out; }
  __device__ double* right(int64_t i) const { return t.memory + at.right + i * t.in; }
  __device__ double* x() const { return t.memory + at.x; }

  // ---- Vectors ---------------------------------------------------------------------------------------------------------------------
  //
  // Element i of a vector belongs to thread i mod kThreads, which alone reads and writes it. Whoever reads another's waits first: products
  // do, and what by_rows() has written is awaited there.

  __device__ double dot(const double* p, const double* q, int64_t n) const {
    double sum = 0;
    for (int64_t i = thread; i < n; i += kThreads) sum = fma(p[i], q[i], sum);
    return block_sum<kThreads>(sum);
  }
  __device__ double normalize(double* p, int64_t n) const {
    const double length = sqrt(dot(p, p, n));
    if (length > 0)
      for (int64_t i = thread; i < n; i += kThreads) p[i] /= length;
    return length;
  }
  __device__ void orthogonalize(double* p, const double* rows, int64_t count, int64_t n) const {
    for (int64_t k = 0; k < 2 * count; ++k) {
      const double* const row = rows + k % count * n;
      const double part = dot(row, p, n);
      for (int64_t i = thread; i < n; i += kThreads) p[i] -= part * row[i];
    }
  }
  __device__ void any_direction(double* p, int64_t n, uint64_t stream) const {
    for (int64_t i = thread; i < n; i += kThreads) {
      uint64_t state = stream * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull + static_cast<uint64_t>(i) * 12 * 0x9E3779B97F4A7C15ull;
      double sum = 0;
      for (int k = 0; k < 12; ++k) {
        state += 0x9E3779B97F4A7C15ull;
        uint64_t y = state;
        y = (y ^ (y >> 30)) * 0xBF58476D1CE4E5B9ull;
        y = (y ^ (y >> 27)) * 0x94D049BB133111EBull;
        sum += static_cast<double>((y ^ (y >> 31)) >> 11) * 0x1p-53;
      }
      p[i] = sum - 6;
    }
  }
  /// As extend() of principal.hpp.
  __device__ double extend(double* rows, int64_t count, int64_t n, const double* from, double of) const {
    double* const to = rows + count * n;
    for (int64_t i = thread; i < n; i += kThreads) to[i] = from[i];
    orthogonalize(to, rows, count, n);
    const double length = normalize(to, n);
    if (length > 1e-13 * of) return length;
    for (uint64_t tries = 0; count < n; ++tries) {
      any_direction(to, n, static_cast<uint64_t>(count) + (tries << 32) + 1);
      normalize(to, n);
      orthogonalize(to, rows, count, n);
      if (normalize(to, n) > 1e-6) break;
    }
    return 0;
  }

  // ---- Products with W -------------------------------------------------------------------------------------------------------------

  __device__ double number(int64_t i) const {
    const auto w = static_cast<double>(t.w.at(i));
    return t.less ? w - static_cast<double>(t.less[i]) : w;
  }
  __device__ void times(const double* from, double* to) const {
    if (t.transposed) by_columns(t.in, t.out, from, to);
    else by_rows(t.out, t.in, from, to);
  }
  __device__ void transposed_times(const double* from, double* to) const {
    if (t.transposed) by_rows(t.in, t.out, from, to);
    else by_columns(t.out, t.in, from, to);
  }
  __device__ void by_rows(int64_t rows, int64_t columns, const double* from, double* to) const {
    __syncthreads();
    for (int64_t first = 0; first < rows; first += kWarps) {
      const int64_t r = first + thread / kWarpSize;
      double sum = 0;
      if (r < rows)
        for (int64_t c = thread % kWarpSize; c < columns; c += kWarpSize) sum = fma(number(r * columns + c), from[c], sum);
      sum = warp_sum(sum);
      if (r < rows && thread % kWarpSize == 0) to[r] = sum;
    }
    __syncthreads();
  }
  __device__ void by_columns(int64_t rows, int64_t columns, const double* from, double* to) const {
    __syncthreads();
    for (int64_t c = thread; c < columns; c += kThreads) {
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r) sum = fma(number(r * columns + c), from[r], sum);
      to[c] = sum;
    }
  }

  // ---- What is written -------------------------------------------------------------------------------------------------------------

  __device__ void put(int64_t i, double of_left, double of_right) const {
    for (int64_t k = thread; k < t.out; k += kThreads) t.b[k * t.rank + i] = static_cast<float>(of_left * left(i)[k]);
    for (int64_t k = thread; k < t.in; k += kThreads) t.a[i * t.in + k] = static_cast<float>(of_right * right(i)[k]);
  }
  /// Singular vectors i, with the value's root, and the sign by which the largest number of the right one is positive.
  __device__ void put_singular(int64_t i, int64_t to, double value) const {
    GALLEY_SHARED(double, sign, 1);
    const double *const right_of_w = t.turned ? left(i) : right(i), *const left_of_w = t.turned ? right(i) : left(i);
    const int64_t in = t.turned ? t.out : t.in, out = t.turned ? t.in : t.out;
    __syncthreads();
    if (thread == 0) {
      double largest = 0;
      for (int64_t k = 0; k < in; ++k)
        if (fabs(right_of_w[k]) > fabs(largest)) largest = right_of_w[k];
      *sign = largest < 0 ? -1 : 1;
    }
    __syncthreads();
    const double root = *sign * sqrt(value / t.scale);
    for (int64_t k = thread; k < out; k += kThreads) t.b[k * t.rank + to] = static_cast<float>(root * left_of_w[k]);
    for (int64_t k = thread; k < in; k += kThreads) t.a[to * in + k] = static_cast<float>(root * right_of_w[k]);
  }
  /// Indices of `values` from the largest on, in double.
  __device__ void sort(const double* values, int64_t n) const {
    double* const order = t.memory + at.order;
    if (thread == 0)
      for (int64_t i = 0; i < n; ++i) {
        int64_t k = i;
        for (; k > 0 && values[static_cast<int64_t>(order[k - 1])] < values[i]; --k) order[k] = order[k - 1];
        order[k] = static_cast<double>(i);
      }
    __syncthreads();
  }

  // ---- The three ways --------------------------------------------------------------------------------------------------------------

  __device__ void factorize() const {
    for (int64_t i = 0; i < t.rank; ++i) {
      for (int64_t r = thread; r < t.out; r += kThreads) x()[r] = number(t.transposed ? i * t.out + r : r * t.in + i);
      extend(left(0), i, t.out, x(), 1e-300);
      transposed_times(left(i), right(i));
      for (int64_t k = thread; k < i; k += kThreads) right(i)[k] = 0;
      put(i, 1, 1);
    }
  }

  __device__ void iterate() const {
    for (int64_t i = 0; i < t.rank; ++i) any_direction(right(i), t.in, t.stream + static_cast<uint64_t>(i));
    for (int64_t n = 0; n <= t.iterations; ++n) {
      for (int64_t i = 0; n > 0 && i < t.rank; ++i) {
        transposed_times(left(i), x());
        extend(right(0), i, t.in, x(), 1e-300);
      }
      for (int64_t i = 0; i < t.rank; ++i) {
        times(right(i), x());
        extend(left(0), i, t.out, x(), 1e-300);
      }
    }
    for (int64_t i = 0; i < t.rank; ++i) transposed_times(left(i), right(i));
    for (int sweep = 0; sweep < 60; ++sweep) {
      double worst = 0;
      for (int64_t p = 0; p < t.rank; ++p)
        for (int64_t q = p + 1; q < t.rank; ++q) {
          double *const a = right(p), *const b = right(q);
          const double aa = dot(a, a, t.in), bb = dot(b, b, t.in), ab = dot(a, b, t.in), size = sqrt(aa * bb);
          if (ab == 0 || fabs(ab) < 1e-15 * size) continue;
          worst = fabs(ab) / size > worst ? fabs(ab) / size : worst;
          const double zeta = (bb - aa) / (2 * ab), turn = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
          const double c = 1 / sqrt(1 + turn * turn), s = c * turn;
          rotate(a, b, t.in, c, s);
          rotate(left(p), left(q), t.out, c, s);
        }
      if (worst < 1e-13) break;
    }
    double* const values = t.memory + at.d;
    for (int64_t i = 0; i < t.rank; ++i) {
      const double length = normalize(right(i), t.in);
      if (thread == 0) values[i] = length;
    }
    sort(values, t.rank);
    for (int64_t i = 0; i < t.rank; ++i) {
      const auto from = static_cast<int64_t>(t.memory[at.order + i]);
      put_singular(from, i, values[from]);
    }
  }
  __device__ void rotate(double* a, double* b, int64_t n, double c, double s) const {
    for (int64_t k = thread; k < n; k += kThreads) {
      const double first = a[k], second = b[k];
      a[k] = c * first - s * second;
      b[k] = s * first + c * second;
    }
  }

  __device__ void lanczos() const {
    double *const alpha = t.memory + at.alpha, *const beta = t.memory + at.beta, *const d = t.memory + at.d;
    any_direction(x(), t.in, 1);
    extend(v(0), 0, t.in, x(), 0);
    double largest = 0;
    for (int64_t count = 1, next = t.rank + 32 < t.steps ? t.rank + 32 : t.steps;; ++count) {
      times(v(count - 1), x());
      const double made = extend(u(0), count - 1, t.out, x(), largest);
      if (thread == 0) alpha[count - 1] = made;
      largest = made > largest ? made : largest;
      double left_over = 0;
      if (count < t.steps) {
        transposed_times(u(count - 1), x());
        left_over = extend(v(0), count, t.in, x(), largest);
        largest = left_over > largest ? left_over : largest;
      }
      if (count == next) {
        eigen(count);
        sort(d, count);
        bool done = true;
        for (int64_t i = 0; i < t.rank; ++i) {
          const double* const y = t.memory + at.z + static_cast<int64_t>(t.memory[at.order + i]) * count;
          const double square = d[static_cast<int64_t>(t.memory[at.order + i])], value = sqrt(square > 0 ? square : 0);
          const double last = alpha[count - 1] * y[count - 1] / (value > 0 ? value : 1);
          done = done && left_over * fabs(last) <= 1e-10 * largest;
        }
        if (done || count == t.steps) return finish(count);
        next = count + count / 2 + 1 < t.steps ? count + count / 2 + 1 : t.steps;
      }
      if (thread == 0) beta[count - 1] = left_over;
    }
  }

  __device__ void finish(int64_t count) const {
    const double *const alpha = t.memory + at.alpha, *const beta = t.memory + at.beta, *const d = t.memory + at.d;
    for (int64_t i = 0; i < t.rank; ++i) {
      const auto from = static_cast<int64_t>(t.memory[at.order + i]);
      const double* const y = t.memory + at.z + from * count;
      const double value = sqrt(d[from] > 0 ? d[from] : 0), by = value > 0 ? value : 1;
      for (int64_t k = thread; k < t.out; k += kThreads) {
        double sum = 0;
        for (int64_t j = 0; j < count; ++j) sum = fma((alpha[j] * y[j] + (j + 1 < count ? beta[j] * y[j + 1] : 0)) / by, u(j)[k], sum);
        left(i)[k] = sum;
      }
      for (int64_t k = thread; k < t.in; k += kThreads) {
        double sum = 0;
        for (int64_t j = 0; j < count; ++j) sum = fma(y[j], v(j)[k], sum);
        right(i)[k] = sum;
      }
      put_singular(i, i, value);
    }
  }

  /// As eigen() of principal.hpp, of BᵀB: the first thread turns the matrix, all turn the vectors, each of them some columns.
  __device__ void eigen(int64_t n) const {
    double *const alpha = t.memory + at.alpha, *const beta = t.memory + at.beta, *const d = t.memory + at.d, *const e = t.memory + at.e,
                  *const cs = t.memory + at.c, *const sn = t.memory + at.s, *const z = t.memory + at.z;
    GALLEY_SHARED(int64_t, range, 2);  // the rotations of this turn: from the one after range[0] down to range[1]
    __syncthreads();
    for (int64_t i = thread; i < n; i += kThreads) {
      d[i] = alpha[i] * alpha[i] + (i ? beta[i - 1] * beta[i - 1] : 0);
      e[i] = i + 1 < n ? alpha[i] * beta[i] : 0;
    }
    for (int64_t i = thread; i < n * n; i += kThreads) z[i] = i / n == i % n ? 1 : 0;
    __syncthreads();
    for (int64_t l = 0; l < n; ++l)
      for (int turns = 0; turns < 60; ++turns) {
        if (thread == 0) turn(l, n, d, e, cs, sn, range);
        __syncthreads();
        const int64_t m = range[0], last = range[1];
        for (int64_t k = thread; k < n; k += kThreads)
          for (int64_t i = m - 1; i >= last; --i) {
            const double below = z[(i + 1) * n + k], here = z[i * n + k];
            z[(i + 1) * n + k] = sn[i] * here + cs[i] * below;
            z[i * n + k] = cs[i] * here - sn[i] * below;
          }
        __syncthreads();
        if (m == l) break;
      }
  }
  __device__ static void turn(int64_t l, int64_t n, double* d, double* e, double* cs, double* sn, int64_t* range) {
    int64_t m = l;
    while (m + 1 < n && fabs(e[m]) > 1e-16 * (fabs(d[m]) + fabs(d[m + 1]))) ++m;
    range[0] = range[1] = m;
    if (m == l) return;
    double g = (d[l + 1] - d[l]) / (2 * e[l]), r = sqrt(g * g + 1);
    g = d[m] - d[l] + e[l] / (g + (g < 0 ? -r : r));
    double s = 1, c = 1, p = 0;
    int64_t i = m - 1;
    for (; i >= l; --i) {
      const double f = s * e[i], b = c * e[i];
      r = sqrt(f * f + g * g);
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
      cs[i] = c;
      sn[i] = s;
      range[1] = i;
    }
    if (r == 0 && i >= l) return;
    d[l] -= p;
    e[l] = g;
    e[m] = 0;
  }

  const Task t;
  const Places at;
  const int thread;
};

__global__ void __launch_bounds__(kThreads, 1) decompose(Task task) { Work(task).run(); }

class Principal {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if (!is_number(node.in(0).dtype)) unsupported("dtypes");
    const Task t = task(node, target);
    // With fewer, the vectors are not the principal ones yet, and nobody would notice.
    const int64_t enough = std::min({t.out, t.in, 4 * t.rank + 128});
    if (!t.qr && t.iterations == 0 && t.steps < enough)
      unsupported("rank " + std::to_string(t.rank) + " takes " + std::to_string(enough) +
                  " Lanczos vectors at least, and the target's workspace, " + std::to_string(target.workspace_budget) + " bytes, holds " +
                  std::to_string(t.steps) + "; init = \"pissa_niter_4\" takes less");
    plan.workspace_bytes = Places(t).end * static_cast<int64_t>(sizeof(double));
  }
  Principal(const Node& node, const galley_kernel_setup& setup) : task_(task(node, *setup.target)) {
    task_.memory = static_cast<double*>(setup.workspace);
  }
  void run(galley_queue* queue) const { launch(decompose, {1, kThreads}, queue, task_); }

 private:
  static Task task(const Node& node, const galley_target& target) {
    Task t = {};
    t.w = Reader(node, 0);
    t.less = node.has(1) ? node.read<float>(1) : nullptr;
    t.b = node.write<float>(0);
    t.a = node.write<float>(1);
    t.out = node.out(0).shape[0];
    t.in = node.out(1).shape[1];
    t.rank = node.i("rank", 0);
    t.iterations = node.i("iterations", 0);
    t.stream = node.stream();
    t.scale = node.f("scale", 1);
    t.transposed = node.i("transposed", 0) != 0;
    t.qr = node.s("how", "svd") == "qr";
    if (t.qr || t.iterations > 0) return t;
    // As principal() of principal.hpp.
    if (t.out < t.in) {
      std::swap(t.out, t.in);
      t.transposed = !t.transposed;
      t.turned = 1;
    }
    const int64_t most = std::min(t.out, t.in), room = target.workspace_budget / (2 * static_cast<int64_t>(sizeof(double)));
    t.steps = std::min(most, 16 * t.rank + 512);
    while (t.steps > t.rank && t.steps * (t.out + t.in + t.steps) > room) t.steps -= std::max<int64_t>(1, (t.steps - t.rank) / 16);
    return t;
  }
  Task task_;
};

const bool added = add(kernel_of<Principal>("lora_principal.cuda", "lora_principal"));

}  // namespace
