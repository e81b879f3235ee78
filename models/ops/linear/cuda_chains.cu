// A product and the activation after it in one pass, as epilogues of cuBLASLt (cuda/gemm.hpp):
//
//   linear>gelu            y = gelu(x·Wᵀ + b), the form by tanh; x·Wᵀ + b is written too where others read it
//   linear_dx>gelu_grad    dh = (dy·W) · gelu'(h)
//   linear>relu            y = max(x·Wᵀ + b, 0)
//
// Whether what lies between is rounded to its dtype before the activation is up to cuBLASLt: of 13.0 on an H100, GELU's gradient is of a
// rounded product, and GELU is not. So GELU's bytes differ from those of the two nodes, by that rounding. They are the same whether or not
// others read the product. In F32 GELU stays a kernel of its own: the epilogue's tanh is an approximation that 16 bits do not show, but 32
// do. ReLU's bytes are those of the two nodes.
//
// SiLU and SwiGLU have no epilogue. Of other architectures than Hopper's and Blackwell's for data centers, cuBLASLt runs these epilogues as
// a kernel of its own after the product, which reads more than ours do (github.com/karpathy/llm.c, pull requests 338, 591 and 653).
#include "cuda/activation.hpp"
#include "ops/linear/cuda_products.hpp"

namespace galley::cuda {
namespace {

template <Epilogue epilogue>
class Chain {
 public:
  static void query(const Nodes& nodes, const galley_target& target, galley_kernel_plan& plan) {
    const int sm = architecture(target);
    if ((sm < 90 || sm >= 120) && !emulated_target(target)) unsupported("cublaslt's epilogues are not fused on this architecture");
    const Matmul p = product(nodes);
    if (const char* reason = Gemm::refusal(p, target)) unsupported(reason);
    const Coded weight(nodes[0].in(1));
    plan.workspace_bytes = Gemm::workspace_bytes(p, 1, target) + (weight ? weight.bytes() + kWorkspaceAlignment : 0);
    plan.priority = 1;  // as the product alone has by cuBLASLt
  }
  Chain(const Nodes& nodes, const galley_kernel_setup& setup)
      : unpacked_{Coded(nodes[0].in(1)), unpacked_.weight ? aligned_workspace(setup.workspace) : nullptr}, form_(placed(nodes)) {
    try {
      whole_.emplace_back(nodes[0].name(), std::vector{form_}, rest(setup));
    } catch (const NoAlgorithm& none) {
      none.warn("the activation is a launch of its own");
      Matmul alone = form_;
      alone.epilogue = Epilogue::None;
      alone.keeps_product = false;
      if (form_.keeps_product) alone.c = form_.product;
      alone_.emplace_back(nodes[0].name(), std::vector{alone}, rest(setup));
    }
  }
  void run(galley_queue* queue) const {
    if (unpacked_.weight) unpacked_.weight.unpack(unpacked_.to, queue);
    for (const Gemm& gemm : whole_) gemm.run(queue);
    for (const LibraryProducts& product : alone_) {
      product.run(queue);
      activate(queue);
    }
  }

 private:
  void activate(galley_queue* queue) const {
    const int64_t n = form_.m * form_.n;
    Reader held, product;
    Writer to;
    held.data = form_.keeps_product ? form_.product : form_.c;
    product.data = form_.product;
    to.data = form_.c;
    held.dtype = product.dtype = to.dtype = form_.c_dtype;
    if constexpr (epilogue == Epilogue::Relu) launch(detail::map_numbers<Relu>, map_grid(n), queue, held, to, n, Relu());
    else if constexpr (epilogue == Epilogue::Gelu) launch(detail::map_numbers<GeluTanh>, map_grid(n), queue, held, to, n, GeluTanh());
    else launch(detail::map_pairs<Gradient<GeluTanh>>, map_grid(n), queue, held, product, to, n, Gradient<GeluTanh>());
  }
  /// The product, which reads what is unpacked at the begin of the workspace.
  Matmul placed(const Nodes& nodes) const {
    Matmul p = product(nodes);
    if (unpacked_.weight) p.b = unpacked_.to;
    return p;
  }
  galley_kernel_setup rest(const galley_kernel_setup& setup) const {
    galley_kernel_setup out = setup;
    if (!unpacked_.weight) return out;
    out.workspace = aligned_workspace(setup.workspace) + unpacked_.weight.bytes();
    out.workspace_bytes -= unpacked_.weight.bytes() + kWorkspaceAlignment;
    return out;
  }
  static Matmul product(const Nodes& nodes) {
    if (nodes.size() != 2) unsupported("one chain at a time");
    const Node &first = nodes[0], &second = nodes[1];
    const galley_operand &between = first.out(0), &out = second.out(0);
    Matmul p = product_of(first);
    if (first.accumulates(0) || second.accumulates(0)) unsupported("a sum");
    if (!sdk::same_operand(between, second.in(0))) unsupported("the activation of something else than the product");
    if (out.dtype != between.dtype) unsupported("an activation into another dtype");
    const bool kept = !(between.flags & GALLEY_OPERAND_NO_MEMORY);
    p.epilogue = epilogue;
    p.c = out.data;
    if (epilogue == Epilogue::Relu) {
      if (kept) unsupported("a product that others read");
      return p;
    }
    if (second.s("approximate", "none") != "tanh") unsupported("GELU is cublaslt's only by tanh");
    if (out.dtype == GALLEY_F32) unsupported("GELU in F32");
    if (p.n % 8 != 0) unsupported("cublaslt keeps what GELU is applied to in rows of multiples of 8");
    if (epilogue == Epilogue::Gelu) {
      p.keeps_product = kept;
      p.product = between.data;
    } else {
      if (kept) unsupported("a product that others read");
      if (second.in(1).dtype != out.dtype || sdk::same_operand(between, second.in(1))) unsupported("what GELU was applied to");
      p.product = second.in(1).data;
    }
    return p;
  }

  Unpacked unpacked_;
  Matmul form_;
  std::vector<Gemm> whole_;             ///< one, or, where cuBLASLt has no algorithm for it,
  std::vector<LibraryProducts> alone_;  ///< the product of it
};

const bool chains_added =
    add(nodes_kernel<Chain<Epilogue::Gelu>>("linear_gelu.cublaslt", "linear>gelu", GALLEY_KERNEL_FORMATS)) &&
    add(nodes_kernel<Chain<Epilogue::GeluGrad>>("linear_dx_gelu_grad.cublaslt", "linear_dx>gelu_grad", GALLEY_KERNEL_FORMATS)) &&
    add(nodes_kernel<Chain<Epilogue::Relu>>("linear_relu.cublaslt", "linear>relu", GALLEY_KERNEL_FORMATS));

}  // namespace
}  // namespace galley::cuda
