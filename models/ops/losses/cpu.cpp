// Losses of one number at a time: one pass over the operands. Sums of rows are kept in double in the workspace and added in order.
#include "cpu/number.hpp"

namespace galley::cpu::losses_op {
namespace {

using namespace sdk;

/// log(1 + e^x) − label·x, and its derivative.
struct Binary {
  using Other = int32_t;
  static float loss(float x, int32_t label) {
    const float of = (x > 0.0f ? x : 0.0f) - x * static_cast<float>(label) + cpu::log(1.0f + cpu::exp(-cpu::absolute(x)));
    return label < 0 ? 0.0f : of;
  }
  static float slope(float x, int32_t label) { return label < 0 ? 0.0f : cpu::sigmoid(x) - static_cast<float>(label); }
  static void check(const Node& n) {
    const int32_t* labels = n.read<int32_t>(1);
    const int64_t C = columns(n.in(0));
    for (int64_t i = 0; i < count(n.in(1)); ++i)
      if (labels[i] > 1)
        invalid(std::string(n.name()) + ": label " + std::to_string(labels[i]) + " at row " + std::to_string(n.view()->first_row + i / C) +
                " is neither 0 nor 1");
  }
};
struct Squared {
  using Other = float;
  static float loss(float x, float t) { return t != t ? 0.0f : (x - t) * (x - t); }
  static float slope(float x, float t) { return t != t ? 0.0f : 2.0f * (x - t); }
  static void check(const Node&) {}
};

template <class Loss>
void forward(const Node& n, void* workspace) {
  Loss::check(n);
  const float* x = n.read<float>(0);  // (R, C)
  const auto* y = n.read<typename Loss::Other>(1);
  double *loss = n.write<double>(0), *of_row = static_cast<double*>(workspace);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  cpu::over_rows(R, C, [=](int64_t r) {
    of_row[r] = static_cast<double>(cpu::sum(C, [=](int64_t c) { return Loss::loss(x[r * C + c], y[r * C + c]); }));
  });
  double total = 0;
  for (int64_t r = 0; r < R; ++r) total += of_row[r];
  *loss = n.accumulates(0) ? *loss + total : total;
}
int64_t workspace(const Node& n, const galley_target&) { return rows(n.in(0)) * static_cast<int64_t>(sizeof(double)); }

template <class Loss>
void backward(const Node& n, void*) {
  Loss::check(n);
  const float* x = n.read<float>(0);
  const auto* y = n.read<typename Loss::Other>(1);
  const cpu::Output d(n, 0);
  const float seed = *n.read<float>(2);
  const int64_t run = cpu::run_over(d);
  cpu::by_access(d.adds(), [&](auto add) {
    cpu::over_elements(count(n.in(0)), [=](int64_t first, int64_t last) {
      cpu::Buffer buffer;
      cpu::in_runs(first, last, run, [&](int64_t at, int64_t size) {
        float* const to = d.open(at, size, buffer);
        const float* from = x + at;
        const auto* other = y + at;
        GALLEY_INDEPENDENT
        for (int64_t i = 0; i < size; ++i) cpu::put(add, to[i], Loss::slope(from[i], other[i]) * seed);
        d.close(at, size, to);
      });
    });
  });
}

bool supports(const Node& n) { return n.in(0).dtype == GALLEY_F32 && n.out(0).dtype == GALLEY_F64; }

const bool added = add(kernel<forward<Binary>, supports, workspace>("binary_cross_entropy.cpu", "binary_cross_entropy")) &&
                   add(kernel<backward<Binary>, cpu::all_numbers>("binary_cross_entropy_grad.cpu", "binary_cross_entropy_grad")) &&
                   add(kernel<forward<Squared>, supports, workspace>("squared_error.cpu", "squared_error")) &&
                   add(kernel<backward<Squared>, cpu::all_numbers>("squared_error_grad.cpu", "squared_error_grad"));

}  // namespace
}  // namespace galley::cpu::losses_op
