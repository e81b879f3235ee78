// embedding: y[r] = table[ids[r]]; ids (R) I32, table (V, C), y (R, C) in F32. Bound by memory; see gather.hpp.
#include "cuda/gather.hpp"

namespace galley::cuda::embedding_op {
namespace {

void embedding(const Node& n, void*, galley_queue* queue) {
  gather_rows(Reader(n, 1), n.read<int32_t>(0), Writer(n, 0), n.in(1).shape[0], columns(n.in(1)), count(n.in(0)), queue);
}

const bool added = add(kernel<embedding>("embedding.cuda", "embedding"));

}  // namespace
}  // namespace galley::cuda::embedding_op
