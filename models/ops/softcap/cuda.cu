// softcap: y = cap · tanh(x / cap). softcap_grad: dx = dy · (1 − tanh²(x / cap)). One pass, at the bandwidth of the operands.
#include "cuda/activation.hpp"
#include "galley/cuda/elementwise.hpp"

namespace galley::cuda::softcap_op {
namespace {

struct Cap {
  float cap;
  __device__ float operator()(float x) const { return cap * Tanh()(x / cap); }
};
struct Slope {
  float cap;
  __device__ float operator()(float dy, float x) const { return dy * Tanh::slope(x / cap); }
};

void softcap(const Node& n, void*, galley_queue* queue) { map(n, queue, Cap{static_cast<float>(n.f("cap", 0))}); }
void softcap_grad(const Node& n, void*, galley_queue* queue) { map2(n, queue, Slope{static_cast<float>(n.f("cap", 0))}); }

const bool added = add(kernel<softcap>("softcap.cuda", "softcap")) && add(kernel<softcap_grad>("softcap_grad.cuda", "softcap_grad"));

}  // namespace
}  // namespace galley::cuda::softcap_op
