// sum_rows: y (N) = the sum of the rows of dy (R, N), in the two launches of columns.hpp. Bound by reading dy once.
#include "cuda/columns.hpp"

namespace galley::cuda::sums_rows_op {
namespace {

struct Rows {
  using Raw = Packed;
  Reader dy;
  int64_t N;

  __device__ void fetch(int64_t r, int64_t c, int n, Raw& raw) const { raw = galley::cuda::fetch(dy, r * N + c, n); }
  __device__ void add(const Raw& raw, float (&sums)[1][kPack]) const {
    float numbers[kPack];
    unpack(raw, dy.dtype, numbers);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sums[0][i] += numbers[i];
  }
};

void sum_rows(const Node& n, void* workspace, galley_queue* queue) {
  const int64_t R = rows(n.in(0)), N = columns(n.in(0));
  column_sums<1>(R, N, {Writer(n, 0)}, workspace, queue, Rows{Reader(n, 0), N});
}
int64_t workspace_of(const Node& n, const galley_target&) { return column_sums_workspace<1>(rows(n.in(0)), columns(n.in(0))); }

const bool added = add(kernel<sum_rows, all_numbers, workspace_of>("sum_rows.cuda", "sum_rows"));

}  // namespace
}  // namespace galley::cuda::sums_rows_op
