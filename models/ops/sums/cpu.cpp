// Sums in a fixed order. sum_squares: blocks of 16,384 elements, each in 32 double lanes (a square of an F32 has neither overflow nor
// rounding there), the blocks added in order; at the bandwidth of memory. sum_rows: column_sums.
#include <algorithm>
#include <cmath>

#include "cpu/columns.hpp"
#include "galley/cpp/groups.hpp"

namespace galley::cpu::sums_op {
namespace {

using namespace sdk;

template <class T>
double squares(const T* x, int64_t n) {
  return cpu::sum<double>(n, [x](int64_t i) {
    const double value = static_cast<double>(cpu::to_float(x[i]));
    return value * value;
  });
}

/// The squares of one block of a node's x.
double block_sum(const Node& n, int64_t block) {
  const int64_t first = block * cpu::block_elements, size = std::min(count(n.in(0)) - first, cpu::block_elements);
  switch (n.in(0).dtype) {
    case GALLEY_BF16: return squares(n.read<cpu::Bf16>(0) + first, size);
    case GALLEY_F16: return squares(n.read<cpu::F16>(0) + first, size);
    default: return squares(n.read<float>(0) + first, size);
  }
}
double sum_of(const double* blocks, int64_t count) {
  double sum = 0;
  for (int64_t block = 0; block < count; ++block) sum += blocks[block];
  return sum;
}

/// Of any number of tensors, all their blocks in one region.
class SumSquares {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan& plan) {
    for (const Node& n : nodes) {
      if (!cpu::is_number(n.in(0).dtype) || n.out(0).dtype != GALLEY_F64) unsupported("dtypes or shapes");
      plan.workspace_bytes += blocks_of(n) * static_cast<int64_t>(sizeof(double));
    }
  }
  SumSquares(const Nodes& nodes, const galley_kernel_setup& setup) : nodes_(nodes), partial_(static_cast<double*>(setup.workspace)) {
    for (const Node& n : nodes_) blocks_.add(blocks_of(n));
  }
  void run() const {
    blocks_.run([&](size_t i, int64_t block) { partial_[blocks_.begin(i) + block] = block_sum(nodes_[i], block); });
    for (size_t i = 0; i < nodes_.size(); ++i) *nodes_[i].write<double>(0) = sum_of(partial_ + blocks_.begin(i), blocks_of(nodes_[i]));
  }

 private:
  static int64_t blocks_of(const Node& n) { return cpu::divide_up(count(n.in(0)), cpu::block_elements); }

  Nodes nodes_;
  Blocks blocks_;
  double* partial_;
};

bool takes_squares(const Node& n) { return cpu::is_number(n.in(0).dtype); }
void block_squares(const Node& n, void*) {
  auto* y = n.write<double>(0);
  parallel(cpu::divide_up(count(n.in(0)), cpu::block_elements), [&](int64_t block) { y[block] = block_sum(n, block); });
}
void sum_blocks(const Node& n, void*) { *n.write<double>(0) = sum_of(n.read<double>(0), count(n.in(0))); }

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

const bool added = add(nodes_kernel<SumSquares>("sum_squares.cpu", "sum_squares")) &&
                   add(kernel<block_squares, takes_squares>("block_squares.cpu", "block_squares")) &&
                   add(kernel<sum_blocks>("sum_blocks.cpu", "sum_blocks")) && add(kernel<norm_finish>("norm_finish.cpu", "norm_finish")) &&
                   add(kernel<sum_rows, cpu::all_numbers, sum_rows_workspace>("sum_rows.cpu", "sum_rows"));

}  // namespace
}  // namespace galley::cpu::sums_op
