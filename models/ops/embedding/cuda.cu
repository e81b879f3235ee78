// embedding: y[r] = table[ids[r]]; ids (R) I32, table (V, C), y (R, C) in F32. Bound by memory; see gather.hpp.
#include "cuda/gather.hpp"

namespace galley::cuda::embedding_op {
namespace {

void embedding(const Node& n, void*, galley_queue* queue) {
  const galley_operand& table = n.in(1);
  gather_rows(Reader(n, 1), n.read<int32_t>(0), Writer(n, 0), table.shape[0], columns(table), count(n.in(0)), queue);
}

const bool added = add(kernel<embedding>("embedding.cuda", "embedding"));

}  // namespace
}  // namespace galley::cuda::embedding_op
