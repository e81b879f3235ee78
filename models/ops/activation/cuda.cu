// Activations y = f(x) and their gradients dx = dy · f'(x), element by element: one pass, at the bandwidth of the operands, but for GELU
// with erf in 16 bit, which its arithmetic bounds.
#include "cuda/activation.hpp"
#include "galley/cuda/elementwise.hpp"

namespace galley::cuda::activation_op {
namespace {

template <class Activation>
void forward(const Node& n, void*, galley_queue* queue) {
  map(n, queue, Activation());
}
template <class Activation>
void backward(const Node& n, void*, galley_queue* queue) {
  map2(n, queue, Gradient<Activation>());
}

void gelu(const Node& n, void* workspace, galley_queue* queue) {
  (n.s("approximate", "none") == "tanh" ? forward<GeluTanh> : forward<GeluErf>)(n, workspace, queue);
}
void gelu_grad(const Node& n, void* workspace, galley_queue* queue) {
  (n.s("approximate", "none") == "tanh" ? backward<GeluTanh> : backward<GeluErf>)(n, workspace, queue);
}

const bool added = add(kernel<gelu>("gelu.cuda", "gelu")) && add(kernel<gelu_grad>("gelu_grad.cuda", "gelu_grad")) &&
                   add(kernel<forward<Silu>>("silu.cuda", "silu")) && add(kernel<backward<Silu>>("silu_grad.cuda", "silu_grad")) &&
                   add(kernel<forward<Relu>>("relu.cuda", "relu")) && add(kernel<backward<Relu>>("relu_grad.cuda", "relu_grad")) &&
                   add(kernel<forward<Relu2>>("relu2.cuda", "relu2")) && add(kernel<backward<Relu2>>("relu2_grad.cuda", "relu2_grad")) &&
                   add(kernel<forward<QuickGelu>>("quick_gelu.cuda", "quick_gelu")) &&
                   add(kernel<backward<QuickGelu>>("quick_gelu_grad.cuda", "quick_gelu_grad")) &&
                   add(kernel<forward<Sigmoid>>("sigmoid.cuda", "sigmoid")) &&
                   add(kernel<backward<Sigmoid>>("sigmoid_grad.cuda", "sigmoid_grad")) && add(kernel<forward<Tanh>>("tanh.cuda", "tanh")) &&
                   add(kernel<backward<Tanh>>("tanh_grad.cuda", "tanh_grad"));

}  // namespace
}  // namespace galley::cuda::activation_op
