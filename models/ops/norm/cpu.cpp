// LayerNorm and RMSNorm: one row, or group, at a time. A row is read from memory once and stays in the first-level cache for the passes
// that follow it, so both directions run at the bandwidth of their operands. What is not F32 is converted in each pass: that costs less
// than a buffer of a whole row would.
#include <cmath>

#include "cpu/columns.hpp"
#include "galley/cpp/groups.hpp"

namespace galley::cpu::norm_op {
namespace {

using namespace sdk;

/// What a norm reads: an operand that is there.
struct Given : cpu::Input {
  using cpu::Input::Input;
  void make(int64_t, int64_t) const {}
};

/// What a norm reads: the sum that an `add` before it makes. Where others read the sum too, it is written first; where not, it is made
/// again for each pass, with the bits that it would have in its dtype.
class Sum {
 public:
  explicit Sum(const Node& add)
      : a_(add, 0),
        b_(add, 1),
        y_(add, 0),
        kept_(add.out(0).data),
        dtype_(add.out(0).dtype),
        alpha_(static_cast<float>(add.f("alpha", 1))) {}
  bool in_place() const { return kept_ && dtype_ == GALLEY_F32; }
  void make(int64_t at, int64_t n) const {
    if (!kept_) return;
    cpu::Buffer buffer;
    cpu::in_runs(at, at + n, cpu::run_over(a_, b_, y_), [&](int64_t first, int64_t size) {
      float* const to = y_.open(first, size, buffer);
      add(first, size, to);
      y_.close(first, size, to);
    });
  }
  const float* read(int64_t at, int64_t n, cpu::Buffer& buffer) const {
    if (in_place()) return static_cast<const float*>(kept_) + at;
    if (kept_) {
      cpu::load(kept_, dtype_, at, n, buffer.numbers);
      return buffer.numbers;
    }
    add(at, n, buffer.numbers);
    if (dtype_ == GALLEY_F32) return buffer.numbers;
    uint16_t rounded[cpu::run_length];
    cpu::store(buffer.numbers, n, rounded, dtype_, 0);
    cpu::load(rounded, dtype_, 0, n, buffer.numbers);
    return buffer.numbers;
  }

 private:
  void add(int64_t at, int64_t n, float* to) const {
    cpu::Buffer buffers[2];
    const float *a = a_.read(at, n, buffers[0]), *b = b_.read(at, n, buffers[1]), alpha = alpha_;
    if (alpha == 1.0f) {
      GALLEY_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
    } else {
      GALLEY_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) to[i] = cpu::fma(alpha, b[i], a[i]);
    }
  }

  cpu::Input a_, b_;
  cpu::Output y_;
  const void* kept_;
  uint32_t dtype_;
  float alpha_;
};

/// "add>norm", one chain at a time: rows of the sum are in the first-level cache when the norm reads them.
template <void (*Norm)(const Node&, const Sum&)>
class AddedNorm {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (const Node& node : nodes)
      if (!cpu::all_numbers(node)) unsupported("dtypes or shapes");
    if (nodes[0].accumulates(0)) unsupported("a sum that is added to");
    if (!same_operand(nodes[0].out(0), nodes[1].in(0))) unsupported("a sum that is not what is normed");
  }
  AddedNorm(const Nodes& nodes, const galley_kernel_setup&) : add_(nodes[0]), norm_(nodes[1]) {}
  void run() const { Norm(norm_, Sum(add_)); }

 private:
  Node add_, norm_;
};

template <class X>
void layer_norm_of(const Node& n, const X& x) {
  const cpu::Input w(n, 1), b(n, 2);  // (C), (C); x is (R, C)
  const cpu::Output y(n, 0);
  float *mean = n.write<float>(1), *rstd = n.write<float>(2);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0)), run = cpu::run_over(x, w, b, y);
  const double eps = n.f("eps", 1e-5);
  cpu::over_rows(R, C, [=](int64_t r) {
    const int64_t row = r * C;
    x.make(row, C);
    cpu::Buffer buffers[4];
    cpu::LaneSum<> sum, squares;
    cpu::in_runs(0, C, run, [&](int64_t at, int64_t size) {
      const float* from = x.read(row + at, size, buffers[0]);
      sum.add(size, [=](int64_t c) { return from[c]; });
    });
    const float m = sum.total() / static_cast<float>(C);
    cpu::in_runs(0, C, run, [&](int64_t at, int64_t size) {
      const float* from = x.read(row + at, size, buffers[0]);
      squares.add(size, [=](int64_t c) { return (from[c] - m) * (from[c] - m); });
    });
    const float s = static_cast<float>(1 / std::sqrt(static_cast<double>(squares.total()) / static_cast<double>(C) + eps));
    if (mean) mean[r] = m;
    if (rstd) rstd[r] = s;
    cpu::in_runs(0, C, run, [&](int64_t at, int64_t size) {
      const float* from = x.read(row + at, size, buffers[0]);
      float* const to = y.open(row + at, size, buffers[1]);
      if (w && b) {
        const float *weight = w.read(at, size, buffers[2]), *bias = b.read(at, size, buffers[3]);
        GALLEY_INDEPENDENT
        for (int64_t c = 0; c < size; ++c) to[c] = cpu::fma((from[c] - m) * s, weight[c], bias[c]);
      } else {
        GALLEY_INDEPENDENT
        for (int64_t c = 0; c < size; ++c) to[c] = (from[c] - m) * s;
        const float *weight = w ? w.read(at, size, buffers[2]) : nullptr, *bias = b ? b.read(at, size, buffers[3]) : nullptr;
        if (weight)
          for (int64_t c = 0; c < size; ++c) to[c] *= weight[c];
        if (bias)
          for (int64_t c = 0; c < size; ++c) to[c] += bias[c];
      }
      y.close(row + at, size, to);
    });
  });
}

void layer_norm(const Node& n, void*) { layer_norm_of(n, Given(n, 0)); }

// body(add, weighted): whether the node adds to dx, and whether there is a weight, as types.
template <class Body>
void by_weight(const cpu::Output& dx, const cpu::Input& w, const Body& body) {
  cpu::by_access(dx.adds(), [&](auto add) {
    if (w) body(add, std::true_type());
    else body(add, std::false_type());
  });
}

void layer_norm_dx(const Node& n, void*) {
  const cpu::Input dy(n, 0), x(n, 1), w(n, 2);
  const float *mean = n.read<float>(3), *rstd = n.read<float>(4);
  const cpu::Output dx(n, 0);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0)), run = cpu::run_over(dy, x, w, dx);
  by_weight(dx, w, [&](auto add, auto weighted) {
    cpu::over_rows(R, C, [=](int64_t r) {
      const int64_t row = r * C;
      const float m = mean[r], s = rstd[r];
      cpu::Buffer buffers[4];
      // body(at, size, g, hat): a run with g = dy·w and x̂ as functions of the column.
      const auto runs = [&](const auto& body) {
        cpu::in_runs(0, C, run, [&](int64_t at, int64_t size) {
          const float *d = dy.read(row + at, size, buffers[0]), *from = x.read(row + at, size, buffers[1]);
          const float* weight = decltype(weighted)::value ? w.read(at, size, buffers[2]) : nullptr;
          body(
              at, size, [=](int64_t c) { return decltype(weighted)::value ? d[c] * weight[c] : d[c]; },
              [=](int64_t c) { return (from[c] - m) * s; });
        });
      };
      cpu::LaneSum<> sum, dot;
      runs([&](int64_t, int64_t size, const auto& g, const auto& hat) {
        cpu::LaneSum<>::add_both(sum, dot, size, g, [=](int64_t c) { return g(c) * hat(c); });
      });
      const float a = sum.total() / static_cast<float>(C), b = dot.total() / static_cast<float>(C);
      runs([&](int64_t at, int64_t size, const auto g, const auto hat) {
        float* const to = dx.open(row + at, size, buffers[3]);
        GALLEY_INDEPENDENT
        for (int64_t c = 0; c < size; ++c) cpu::put(add, to[c], s * (g(c) - cpu::fma(hat(c), b, a)));
        dx.close(row + at, size, to);
      });
    });
  });
}

void layer_norm_dw(const Node& n, void* workspace) {
  const cpu::Input dy(n, 0), x(n, 1);
  const float *mean = n.read<float>(2), *rstd = n.read<float>(3);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  if (!n.has_out(1)) {
    cpu::column_sums<1>(R, C, {cpu::Output(n, 0)}, workspace, [=](int64_t r, int64_t first, int64_t count, float* const* into) {
      cpu::Buffer buffers[2];
      const float *d = dy.read(r * C + first, count, buffers[0]), *from = x.read(r * C + first, count, buffers[1]);
      const float m = mean[r], s = rstd[r];
      float* dw = into[0];
      GALLEY_INDEPENDENT
      for (int64_t c = 0; c < count; ++c) dw[c] = cpu::fma(d[c], (from[c] - m) * s, dw[c]);
    });
    return;
  }
  cpu::column_sums<2>(R, C, {cpu::Output(n, 0), cpu::Output(n, 1)}, workspace,
                      [=](int64_t r, int64_t first, int64_t count, float* const* into) {
                        cpu::Buffer buffers[2];
                        const float *d = dy.read(r * C + first, count, buffers[0]), *from = x.read(r * C + first, count, buffers[1]);
                        const float m = mean[r], s = rstd[r];
                        float *dw = into[0], *db = into[1];
                        GALLEY_INDEPENDENT
                        for (int64_t c = 0; c < count; ++c) {
                          dw[c] = cpu::fma(d[c], (from[c] - m) * s, dw[c]);
                          db[c] += d[c];
                        }
                      });
}

int64_t layer_norm_dw_workspace(const Node& n, const galley_target&) {
  return cpu::column_sums_workspace(rows(n.in(0)), columns(n.in(0)), n.has_out(1) ? 2 : 1);
}

// ---- RMSNorm: G elements a group, R groups -------------------------------------------------------------------------------------------

template <class X>
void rms_norm_of(const Node& n, const X& x) {
  const cpu::Input w(n, 1);
  const cpu::Output y(n, 0);
  float* rstd = n.write<float>(1);
  const int64_t G = n.i("group", w ? count(n.in(1)) : columns(n.in(0))), R = count(n.in(0)) / G, run = cpu::run_over(x, w, y);
  const double eps = n.f("eps", 1e-6);
  const float offset = static_cast<float>(n.f("offset", 0));
  cpu::over_rows(R, G, [=](int64_t r) {
    const int64_t group = r * G;
    x.make(group, G);
    cpu::Buffer buffers[3];
    cpu::LaneSum<> squares;
    cpu::in_runs(0, G, run, [&](int64_t at, int64_t size) {
      const float* from = x.read(group + at, size, buffers[0]);
      squares.add(size, [=](int64_t c) { return from[c] * from[c]; });
    });
    const float s = static_cast<float>(1 / std::sqrt(static_cast<double>(squares.total()) / static_cast<double>(G) + eps));
    if (rstd) rstd[r] = s;
    cpu::in_runs(0, G, run, [&](int64_t at, int64_t size) {
      const float* from = x.read(group + at, size, buffers[0]);
      float* const to = y.open(group + at, size, buffers[1]);
      if (w) {
        const float* weight = w.read(at, size, buffers[2]);
        GALLEY_INDEPENDENT
        for (int64_t c = 0; c < size; ++c) to[c] = from[c] * s * (offset + weight[c]);
      } else {
        GALLEY_INDEPENDENT
        for (int64_t c = 0; c < size; ++c) to[c] = from[c] * s;
      }
      y.close(group + at, size, to);
    });
  });
}

void rms_norm(const Node& n, void*) { rms_norm_of(n, Given(n, 0)); }

void rms_norm_dx(const Node& n, void*) {
  const cpu::Input dy(n, 0), x(n, 1), w(n, 2);
  const float* rstd = n.read<float>(3);
  const float offset = static_cast<float>(n.f("offset", 0));
  const cpu::Output dx(n, 0);
  const int64_t R = count(n.in(3)), G = count(n.in(1)) / R, run = cpu::run_over(dy, x, w, dx);
  by_weight(dx, w, [&](auto add, auto weighted) {
    cpu::over_rows(R, G, [=](int64_t r) {
      const int64_t group = r * G;
      const float s = rstd[r];
      cpu::Buffer buffers[4];
      // body(at, size, g, from): a run with g = dy·(offset + w) as a function of the column, and x.
      const auto runs = [&](const auto& body) {
        cpu::in_runs(0, G, run, [&](int64_t at, int64_t size) {
          const float *d = dy.read(group + at, size, buffers[0]), *from = x.read(group + at, size, buffers[1]);
          const float* weight = decltype(weighted)::value ? w.read(at, size, buffers[2]) : nullptr;
          body(
              at, size, [=](int64_t c) { return decltype(weighted)::value ? d[c] * (offset + weight[c]) : d[c]; }, from);
        });
      };
      cpu::LaneSum<> dot;
      runs([&](int64_t, int64_t size, const auto& g, const float* from) { dot.add(size, [=](int64_t c) { return g(c) * from[c]; }); });
      const float b = s * s * dot.total() / static_cast<float>(G);
      runs([&](int64_t at, int64_t size, const auto g, const float* from) {
        float* const to = dx.open(group + at, size, buffers[3]);
        GALLEY_INDEPENDENT
        for (int64_t c = 0; c < size; ++c) cpu::put(add, to[c], s * (g(c) - from[c] * b));
        dx.close(group + at, size, to);
      });
    });
  });
}

void rms_norm_dw(const Node& n, void* workspace) {
  const cpu::Input dy(n, 0), x(n, 1);
  const float* rstd = n.read<float>(2);
  const int64_t G = count(n.out(0)), R = count(n.in(0)) / G;
  cpu::column_sums<1>(R, G, {cpu::Output(n, 0)}, workspace, [=](int64_t r, int64_t first, int64_t count, float* const* into) {
    cpu::Buffer buffers[2];
    const float *d = dy.read(r * G + first, count, buffers[0]), *from = x.read(r * G + first, count, buffers[1]), s = rstd[r];
    float* dw = into[0];
    GALLEY_INDEPENDENT
    for (int64_t c = 0; c < count; ++c) dw[c] = cpu::fma(d[c], from[c] * s, dw[c]);
  });
}

int64_t rms_norm_dw_workspace(const Node& n, const galley_target&) {
  const int64_t G = count(n.out(0));
  return cpu::column_sums_workspace(count(n.in(0)) / G, G, 1);
}

const bool added = add(kernel<layer_norm, cpu::all_numbers>("layer_norm.cpu", "layer_norm")) &&
                   add(kernel<layer_norm_dx, cpu::all_numbers>("layer_norm_dx.cpu", "layer_norm_dx")) &&
                   add(kernel<layer_norm_dw, cpu::all_numbers, layer_norm_dw_workspace>("layer_norm_dw.cpu", "layer_norm_dw")) &&
                   add(kernel<rms_norm, cpu::all_numbers>("rms_norm.cpu", "rms_norm")) &&
                   add(nodes_kernel<AddedNorm<layer_norm_of<Sum>>>("add_layer_norm.cpu", "add>layer_norm", "cpu", 0)) &&
                   add(nodes_kernel<AddedNorm<rms_norm_of<Sum>>>("add_rms_norm.cpu", "add>rms_norm", "cpu", 0)) &&
                   add(kernel<rms_norm_dx, cpu::all_numbers>("rms_norm_dx.cpu", "rms_norm_dx")) &&
                   add(kernel<rms_norm_dw, cpu::all_numbers, rms_norm_dw_workspace>("rms_norm_dw.cpu", "rms_norm_dw"));

}  // namespace
}  // namespace galley::cpu::norm_op
