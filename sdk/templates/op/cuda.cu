// mish and mish_grad on a GPU: one pass over the operands, eight numbers a thread, bound by memory. Each operand may be F32, BF16 or F16,
// and an output is written or added to, as its node says: `map` and `map2` take care of both.
//
// This file is built twice: by nvcc for GPUs, and by the C++ compiler for the emulated one, on which `galley check` runs it. Kernels that
// are not element by element are in templates/kernel.
#include <galley/cuda/elementwise.hpp>

#include "rule.hpp"

namespace {

using namespace galley::cuda;

void mish(const Node& node, void*, galley_queue* queue) { map(node, queue, Mish()); }
void mish_grad(const Node& node, void*, galley_queue* queue) { map2(node, queue, MishGrad()); }

const bool registered = add(kernel<mish>("mish.cuda", "mish")) && add(kernel<mish_grad>("mish_grad.cuda", "mish_grad"));

}  // namespace

GALLEY_PLUGIN("mish", "1.0.0");
