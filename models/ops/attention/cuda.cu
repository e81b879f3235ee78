// attention and attention_grad on CUDA. A node takes the first way that it fits:
//   cuDNN             BF16 and F16      cuda_fused.cu, for rows of one document
//   tensor cores      BF16 and F16      cuda_mma_forward.cu, cuda_mma_grad.cu
//   multiply-adds     any dtype         cuda_forward.cu, cuda_grad.cu
// Our own keep nothing of Sq × Sk. Heads of up to 256 numbers.
//
// Bits. A query's sums, and those of a key's gradient, have an order that depends on shapes and bounds alone: the same bytes in every run,
// for a batch of 8 and 8 batches of 1, for a row of one document with first_key and without.
#include "ops/attention/cuda_variants.hpp"

namespace galley::cuda::attention {
namespace {

using namespace models;
using namespace models::attention_input;
using namespace models::attention_output;

/// What both directions read.
template <class Call>
void take_inputs(Call& call, const Node& node, const AttentionExtents& e, const galley_kernel_setup& setup) {
  upload_buckets(e, setup);
  call.a = call_of(node, e, setup.constants);
  const auto in = parts(e, Reader(node, Q), Reader(node, K), Reader(node, V));
  call.q = in.q, call.k = in.k, call.v = in.v;
}

template <class Way>
class Forward {
 public:
  static void query(const Node& node, const galley_target&, galley_kernel_plan& plan) {
    const AttentionExtents e = attention_extents(node);
    if (const char* why = Way::refuses_forward(node, e)) unsupported(why);
    plan.constants_bytes = constant_bytes(e);
    plan.priority = Way::kPriority;
  }
  Forward(const Node& node, const galley_kernel_setup& setup) {
    const AttentionExtents e = attention_extents(node);
    Way::prepare_forward(e);
    take_inputs(call_, node, e, setup);
    call_.o = Writer(node, 0);
    call_.lse = node.write<float>(1);
  }
  void run(galley_queue* queue) const { Way::forward(call_, queue); }

 private:
  ForwardCall call_;
};

template <class Way>
class Gradient {
 public:
  static void query(const Node& node, const galley_target&, galley_kernel_plan& plan) {
    const AttentionExtents e = attention_extents(node);
    if (const char* why = Way::refuses_gradient(node, e)) unsupported(why);
    plan.workspace_bytes = Workspace(node, e).end * 4;
    plan.constants_bytes = constant_bytes(e);
    plan.priority = Way::kPriority;
  }
  Gradient(const Node& node, const galley_kernel_setup& setup) {
    const AttentionExtents e = attention_extents(node);
    Way::prepare_gradient(e);
    take_inputs(call_, node, e, setup);
    call_.o = Reader(node, O), call_.go = Reader(node, DO);
    call_.lse = node.read<float>(Lse);
    const auto out = parts(e, Writer(node, DQ), Writer(node, DK), Writer(node, DV));
    call_.dq = out.q, call_.dk = out.k, call_.dv = out.v;
    call_.dbias = Writer(node, DBias);
    const Workspace w(node, e);
    auto* const floats = static_cast<float*>(setup.workspace);
    call_.delta = floats;
    call_.spans = reinterpret_cast<Span*>(floats + w.spans);
    call_.biases = floats + w.biases;
  }
  void run(galley_queue* queue) const { Way::gradient(call_, queue); }

 private:
  /// In numbers of 32 bits.
  struct Workspace {
    Workspace(const Node& node, const AttentionExtents& e) {
      const GradTiles tiles = Way::grad_tiles(e.D);
      spans = blocks_of(e.B * e.heads * e.Sq, 16) * 16;
      biases = spans + e.B * blocks_of(e.Sq, tiles.streamed) * static_cast<int64_t>(sizeof(Span) / 4);
      end = biases + (node.has_out(DBias) ? e.B * e.heads * blocks_of(e.Sq, tiles.resident) * e.buckets : 0);
    }
    int64_t spans, biases, end;
  };
  GradCall call_;
};

const bool added = add(kernel_of<Forward<Multiplied>>("attention.cuda", "attention")) &&
                   add(kernel_of<Gradient<Multiplied>>("attention_grad.cuda", "attention_grad")) &&
                   add(kernel_of<Forward<TensorCores>>("attention.cuda_mma", "attention")) &&
                   add(kernel_of<Gradient<TensorCores>>("attention_grad.cuda_mma", "attention_grad"));

}  // namespace
}  // namespace galley::cuda::attention
