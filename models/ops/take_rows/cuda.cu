// take_rows: y[k] = row index[k] of x; x (R, C), index (n) I32, y (n, C). Bound by memory; see gather.hpp. take_rows_grad without an index:
// eight numbers of dx (B, S, C) a thread, of dy (B, C) at the position that is taken, else zeros. (With one, it is embedding_grad's kernel.)
#include "cuda/gather.hpp"

namespace galley::cuda::take_rows_op {
namespace {

void take_rows(const Node& n, void*, galley_queue* queue) {
  const int64_t R = rows(n.in(0)), taken = rows(n.out(0));
  gather_rows(Reader(n, 0), n.read<int32_t>(1), Writer(n, 0), R, columns(n.in(0)), taken, queue, n.i("position", 0), R / taken);
}

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    put_rows(Reader dy, Writer dx, int64_t R, int64_t S, int64_t C, int64_t position, int64_t packs) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, r = thread / packs, c = thread % packs * kPack;
  if (r >= R) return;
  const bool taken = r % S == position;
  if (!taken && dx.adds) return;
  const int n = pack_at(c, C);
  float numbers[kPack] = {};
  if (taken) dy.load(r / S * C + c, n, numbers);
  dx.store(r * C + c, n, numbers);
}

void at_position(const Node& n, void*, galley_queue* queue) {
  const int64_t R = rows(n.out(0)), C = columns(n.out(0)), packs = blocks_of(C, kPack);
  launch(put_rows, {blocks_of(R * packs, kThreads), kThreads}, queue, Reader(n, 0), Writer(n, 0), R, n.out(0).shape[1], C,
         n.i("position", 0), packs);
}
bool without_index(const Node& n) { return all_numbers(n) && !n.has(1); }

const bool added = add(kernel<take_rows>("take_rows.cuda", "take_rows")) &&
                   add(kernel<at_position, without_index>("take_rows_grad.position", "take_rows_grad"));

}  // namespace
}  // namespace galley::cuda::take_rows_op
