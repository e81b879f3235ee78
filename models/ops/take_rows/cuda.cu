// take_rows: y[k] = row index[k] of x; x (R, C), index (n) I32, y (n, C). Bound by memory; see gather.hpp.
#include "cuda/gather.hpp"

namespace galley::cuda::take_rows_op {
namespace {

void take_rows(const Node& n, void*, galley_queue* queue) {
  gather_rows(Reader(n, 0), n.read<int32_t>(1), Writer(n, 0), rows(n.in(0)), columns(n.in(0)), count(n.in(1)), queue);
}

const bool added = add(kernel<take_rows>("take_rows.cuda", "take_rows"));

}  // namespace
}  // namespace galley::cuda::take_rows_op
