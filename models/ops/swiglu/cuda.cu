// swiglu: y = act(gate) · up. swiglu_grad: dgate = dy · up · act'(gate) and dup = dy · act(gate), either of which may be absent. One pass
// over three operands forward, five backward, at their bandwidth. gate and up may be the halves of the rows of one operand. A thread reads
// its eight numbers before it writes either gradient, so both may take over an input.
#include <string_view>

#include "cuda/activation.hpp"
#include "galley/cuda/elementwise.hpp"

namespace galley::cuda::swiglu_op {
namespace {

/// Where the numbers of a thread lie in rows of F of y, and of gate and up: rows of their own, or the halves of rows of 2·F.
struct Halves {
  int64_t R, F, row, packs;  // row: from one of gate and of up to the next
  bool packed;

  Halves(const Node& n, uint32_t gate) : packed(!n.has(gate + 1)) {
    // What does not have to be in rows is one.
    R = packed ? rows(n.in(gate)) : 1;
    F = packed ? columns(n.in(gate)) / 2 : count(n.in(gate));
    row = packed ? 2 * F : F;
    packs = blocks_of(F, kPack);
  }
  Grid grid() const { return {blocks_of(R * packs, kMapThreads), kMapThreads}; }
};

/// The pack of a thread; n is 0 after the last.
struct Place {
  int64_t y, gate, up;
  int n;
  __device__ explicit Place(const Halves& h) {
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
    const int64_t r = h.packed ? thread / h.packs : 0, c = (thread - r * h.packs) * kPack;
    y = r * h.F + c;
    gate = r * h.row + c;
    up = h.packed ? gate + h.F : gate;
    n = r < h.R ? pack_at(c, h.F) : 0;
  }
};

template <class Activation>
__global__ void __launch_bounds__(kMapThreads) values(Halves halves, Reader x, Writer y) {
  const Place at(halves);
  if (at.n == 0) return;
  float g[kPack], u[kPack];
  x.load(at.gate, at.n, g);
  x.load(at.up, at.n, u);
#pragma unroll
  for (int i = 0; i < kPack; ++i) g[i] = Gated<Activation>()(g[i], u[i]);
  y.store(at.y, at.n, g);
}

struct Same {
  __device__ float operator()(float x) const { return x; }
};

template <class Activation>
void forward(const Node& n, void* workspace, galley_queue* queue) {
  if (n.has(1)) return map2(n, queue, Gated<Activation>());
  const Halves halves(n, 0);
  // y in the place of what it is made of, as numbers twice as long: other numbers lie there than those that have been read.
  const bool apart = n.in(0).data == n.out(0).data;
  Writer y(n, 0);
  if (apart) y.data = workspace;
  launch(values<Activation>, halves.grid(), queue, halves, Reader(n, 0), y);
  if (!apart) return;
  Reader made;
  made.data = workspace;
  const int64_t size = count(n.out(0));
  launch(detail::map_numbers<Same>, map_grid(size), queue, made, Writer(n, 0), size, Same());
}

/// dup is absent where dgate holds both.
template <class Activation>
__global__ void __launch_bounds__(kMapThreads) gradients(Halves halves, Reader dy, Reader gate, Reader up, Writer dgate, Writer dup) {
  const Place at(halves);
  if (at.n == 0) return;
  float d[kPack], g[kPack], u[kPack];
  dy.load(at.y, at.n, d);
  gate.load(at.gate, at.n, g);
  if (dgate.there()) up.load(at.up, at.n, u);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    float value, slope;
    Gated<Activation>::both(g[i], value, slope);
    if (dgate.there()) u[i] = d[i] * u[i] * slope;
    g[i] = d[i] * value;
  }
  if (dgate.there()) dgate.store(at.gate, at.n, u);
  if (dup.there()) dup.store(at.up, at.n, g);
}

template <class Activation>
void backward(const Node& n, void*, galley_queue* queue) {
  const Halves halves(n, 1);
  const bool packed = halves.packed;
  launch(gradients<Activation>, halves.grid(), queue, halves, Reader(n, 0), Reader(n, 1), Reader(n, packed ? 1 : 2), Writer(n, 0),
         Writer(n, packed ? 0 : 1));
}

/// body(Activation), of a name that the shape rule has checked.
template <class Body>
void by_gate(const Node& n, const Body& body) {
  const std::string_view gate = galley_attr_string(n.view(), "activation", "silu");
  if (gate == "gelu") body(GeluErf());
  else if (gate == "gelu_tanh") body(GeluTanh());
  else if (gate == "relu") body(Relu());
  else if (gate == "sigmoid") body(Sigmoid());
  else body(Silu());
}
void swiglu(const Node& n, void* workspace, galley_queue* queue) {
  by_gate(n, [&](auto gate) { forward<decltype(gate)>(n, workspace, queue); });
}
void swiglu_grad(const Node& n, void* workspace, galley_queue* queue) {
  by_gate(n, [&](auto gate) { backward<decltype(gate)>(n, workspace, queue); });
}

/// Where y may take over an operand with two numbers for each of its own.
int64_t workspace(const Node& n, const galley_target&) {
  const bool may = !n.has(1) && n.in(0).dtype != n.out(0).dtype && n.out(0).dtype == GALLEY_F32;
  return may ? count(n.out(0)) * static_cast<int64_t>(sizeof(float)) : 0;
}

const bool added =
    add(kernel<swiglu, all_numbers, workspace>("swiglu.cuda", "swiglu")) && add(kernel<swiglu_grad>("swiglu_grad.cuda", "swiglu_grad"));

}  // namespace
}  // namespace galley::cuda::swiglu_op
