// Sums in a fixed order. sum_squares: blocks of 16,384 elements, each in 32 double lanes (a square of an F32 has neither overflow nor
// rounding there), the blocks added in order; at the bandwidth of memory. sum_rows: column_sums.
#include <cmath>

#include "cpu/columns.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

template <class T>
void squares(const Node& n, double* partial) {
  const T* x = n.read<T>(0);
  const int64_t N = count(n.in(0));
  cpu::over_elements(N, [=](int64_t first, int64_t last) {
    partial[first / cpu::block_elements] = cpu::sum<double>(last - first, [from = x + first](int64_t i) {
      const double value = static_cast<double>(cpu::to_float(from[i]));
      return value * value;
    });
  });
  double sum = 0;
  for (int64_t block = 0; block < cpu::divide_up(N, cpu::block_elements); ++block) sum += partial[block];
  *n.write<double>(0) = sum;
}

void sum_squares(const Node& n, void* workspace) {
  auto* partial = static_cast<double*>(workspace);
  switch (n.in(0).dtype) {
    case GALLEY_BF16: return squares<cpu::Bf16>(n, partial);
    case GALLEY_F16: return squares<cpu::F16>(n, partial);
    default: return squares<float>(n, partial);
  }
}
bool sum_squares_supports(const Node& n) {
  const uint32_t t = n.in(0).dtype;
  return cpu::is_number(t) && n.out(0).dtype == GALLEY_F64;
}
int64_t sum_squares_workspace(const Node& n, const galley_target&) {
  return cpu::divide_up(count(n.in(0)), cpu::block_elements) * static_cast<int64_t>(sizeof(double));
}

void norm_finish(const Node& n, void*) {
  double sum = 0;
  for (uint32_t i = 1; i < n.view()->n_inputs; ++i) sum += *n.read<double>(i);
  *n.write<float>(0) = static_cast<float>(std::sqrt(sum) / static_cast<double>(*n.read<float>(0)));
  *n.write<int32_t>(1) = !std::isfinite(sum);
}

void sum_rows(const Node& n, void* workspace) {
  const cpu::Input dy(n, 0);
  const int64_t R = rows(n.in(0)), N = columns(n.in(0));
  cpu::column_sums<1>(R, N, {cpu::Output(n, 0)}, workspace, [=](int64_t r, int64_t first, int64_t count, float* const* into) {
    cpu::Buffer buffer;
    const float* from = dy.read(r * N + first, count, buffer);
    float* to = into[0];
    GALLEY_INDEPENDENT
    for (int64_t c = 0; c < count; ++c) to[c] += from[c];
  });
}
int64_t sum_rows_workspace(const Node& n, const galley_target&) { return cpu::column_sums_workspace(rows(n.in(0)), columns(n.in(0)), 1); }

const bool added = add(kernel<sum_squares, sum_squares_supports, sum_squares_workspace>("sum_squares.cpu", "sum_squares")) &&
                   add(kernel<norm_finish>("norm_finish.cpu", "norm_finish")) &&
                   add(kernel<sum_rows, cpu::all_numbers, sum_rows_workspace>("sum_rows.cpu", "sum_rows"));

}  // namespace
