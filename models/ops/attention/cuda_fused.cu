// attention and attention_grad by cuDNN's fused engines, where the target lists cuDNN 9 and a node is one that they take (fused.hpp).
// Forward is one call. Backward is one call for each piece, and the pieces follow each other in one workspace.
//
// Bits. Forward and deterministic backward have the same bytes in every run; backward without that (recipe: deterministic = false) adds up
// dq in the order in which blocks end.
#include <cstring>
#include <memory>
#include <vector>

#include "ops/attention/cuda_call.hpp"
#include "ops/attention/fused.hpp"

#if GALLEY_CUDA_EMULATED
#include "cuda/emulated/attention.hpp"
#else
#include "ops/attention/fused_cudnn.hpp"
#endif

#if __has_include(<cudnn_graph.h>) && !GALLEY_CUDA_EMULATED
#include <cudnn_graph.h>
#define GALLEY_DNN_SAME(name, value) static_assert(static_cast<int>(::name) == (value), #name);
GALLEY_DNN_NUMBERS(GALLEY_DNN_SAME)
#endif

namespace galley::cuda::attention {
namespace {

using namespace models;
using namespace models::attention_input;
using namespace models::attention_output;

constexpr int64_t kPriority = 20;

/// The version of cuDNN that the target lists. Before 9.10.2, it masks with another number than −∞, or refuses these graphs.
std::string planned_version(const galley_target& target) {
  const char* const version = library_version(target, "cudnn");
  int major = 0, minor = 0, patch = 0;
  if (version) std::sscanf(version, "%d.%d.%d", &major, &minor, &patch);
  if (major != 9 || minor < 10 || (minor == 10 && patch < 2)) unsupported("the target lists no library cudnn 9.10.2 or later");
  return version;
}
const FusedOperands& checked(const Node& node, const FusedOperands& a) {
  for (const void* address : std::initializer_list<const void*>{a.q, a.k, a.v, a.go, a.o, a.dq, a.dk, a.dv, a.lse})
    if (reinterpret_cast<uintptr_t>(address) % 16)
      unsupported(std::string(node.name()) + ": cudnn takes operands at multiples of 16 bytes");
  return a;
}

#if GALLEY_CUDA_EMULATED
/// A call, ready to be made.
class FusedCall {
 public:
  FusedCall(const Node&, const galley_target&, const FusedForm& form, const FusedOperands& operands, bool backward, char* workspace,
            int64_t bytes)
      : form_(form), operands_(operands), backward_(backward), workspace_(workspace), bytes_(bytes) {}
  void run(galley_queue* queue) const {
    put(queue, [call = *this] { call.run_now(); });
  }

 private:
  void run_now() const {
    std::memset(workspace_, 0xFF, static_cast<size_t>(bytes_));  // as an engine might: what must outlive it has to lie elsewhere
    const FusedLoops loops(form_, operands_);
    if (backward_) loops.backward(reinterpret_cast<float*>(workspace_));
    else loops.forward();
  }

  FusedForm form_;
  FusedOperands operands_;
  bool backward_;
  char* workspace_;
  int64_t bytes_;
};
#else
class FusedCall {
 public:
  FusedCall(const Node& node, const galley_target& target, const FusedForm& form, const FusedOperands& operands, bool backward,
            char* workspace, int64_t bytes)
      : name_(node.name()), dnn_(dnn::Dnn::of(planned_version(target))) {
    const FusedMemory memory(form, architecture(target));
    float* const sums = backward ? reinterpret_cast<float*>(workspace) : nullptr;
    char* const library = backward ? workspace + memory.library : workspace;
    if (backward && !form.deterministic) {
      dq_sums_ = workspace + memory.dq;
      dq_bytes_ = static_cast<size_t>(4 * form.queries() * form.D);
    }
    try {
      graph_ = fused_graph(dnn_, form, backward, workspace + bytes - library);
      pack_ = std::make_shared<const dnn::Descriptor>(graph_->pack(operands, sums, reinterpret_cast<float*>(dq_sums_), library));
    } catch (const sdk::Failure& failure) {
      throw sdk::Failure(GALLEY_FAILED, name_ + ": " + failure.what(), failure.hint);
    }
  }
  void run(galley_queue* queue) const {
    if (dq_sums_) check(cudaMemsetAsync(dq_sums_, 0, dq_bytes_, reinterpret_cast<cudaStream_t>(queue)), "cudaMemsetAsync");
    dnn_.check(dnn_.set_stream(dnn_.handle(), queue), name_ + ": cudnnSetStream");
    dnn_.check(dnn_.execute(dnn_.handle(), graph_->plan(), pack_->raw()), name_ + ": cudnnBackendExecute");
  }

 private:
  std::string name_;
  const dnn::Dnn& dnn_;
  std::shared_ptr<const FusedGraph> graph_;
  std::shared_ptr<const dnn::Descriptor> pack_;
  char* dq_sums_ = nullptr;
  size_t dq_bytes_ = 0;
};
#endif

class FusedForward {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    const AttentionExtents e = attention_extents(node);
    planned_version(target);
    if (const char* why = fused_refusal(node, e, {Q, K, V}, {0})) unsupported(why);
    plan.workspace_bytes = FusedMemory::kAlignment + FusedMemory::kForward;
    plan.priority = kPriority;
  }
  FusedForward(const Node& node, const galley_kernel_setup& setup)
      : call_(node, *setup.target, fused_form(node, attention_extents(node), true), checked(node, operands(node)), false,
              aligned_workspace(setup.workspace), FusedMemory::kForward) {}
  void run(galley_queue* queue) const { call_.run(queue); }

 private:
  static FusedOperands operands(const Node& node) {
    const AttentionExtents e = attention_extents(node);
    const auto in = parts(e, Reader(node, Q), Reader(node, K), Reader(node, V));
    return {in.q.data, in.k.data, in.v.data, nullptr, node.write<void>(0), nullptr, nullptr, nullptr, node.write<float>(1)};
  }
  FusedCall call_;
};

class FusedGradient {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    const AttentionExtents e = attention_extents(node);
    const std::string version = planned_version(target);
    const auto refusal = [&](std::initializer_list<uint32_t> out) { return fused_refusal(node, e, {Q, K, V, O, DO}, out); };
    if (const char* why = e.packed ? refusal({DQ}) : refusal({DQ, DK, DV})) unsupported(why);
    const int sm = architecture(target);
    if (deterministic(target) && sm >= 100 && sm < 120 && std::atoi(version.substr(2).c_str()) < 18)
      unsupported("cudnn " + version + ": its deterministic backward for this GPU began with 9.18");
    const FusedForm piece = piece_of(node, target);
    if (!piece.B) unsupported("the workspace budget: cudnn needs more for one key head of one sequence");
    plan.workspace_bytes = FusedMemory::kAlignment + FusedMemory(piece, architecture(target)).end;
    plan.priority = kPriority;
    if (!deterministic(target)) plan.flags |= GALLEY_PLAN_VARIES;
  }

  FusedGradient(const Node& node, const galley_kernel_setup& setup) {
    const AttentionExtents e = attention_extents(node);
    const FusedForm piece = piece_of(node, *setup.target);
    const int64_t bytes = FusedMemory(piece, architecture(*setup.target)).end, group = e.group();
    char* const workspace = aligned_workspace(setup.workspace);
    const auto in = parts(e, Reader(node, Q), Reader(node, K), Reader(node, V));
    const auto out = parts(e, Writer(node, DQ), Writer(node, DK), Writer(node, DV));
    for (int64_t b = 0; b < e.B; b += piece.B)
      for (int64_t g = 0; g < e.kv_heads; g += piece.kv_heads) {
        const int64_t q = e.q_at(b, g * group, 0), kv = e.kv_at(b, g, 0), o = e.o_at(b, g * group, 0),
                      lse = (b * e.heads + g * group) * e.Sq;
        const FusedOperands operands = {after(in.q, q).data,
                                        after(in.k, kv).data,
                                        after(in.v, kv).data,
                                        after(Reader(node, DO), o).data,
                                        const_cast<void*>(after(Reader(node, O), o).data),  // read
                                        after(out.q, q).data,
                                        after(out.k, kv).data,
                                        after(out.v, kv).data,
                                        const_cast<float*>(node.read<float>(Lse)) + lse};  // read
        calls_.emplace_back(node, *setup.target, piece, checked(node, operands), true, workspace, bytes);
      }
  }
  void run(galley_queue* queue) const {
    for (const FusedCall& call : calls_) call.run(queue);
  }

 private:
  static bool deterministic(const galley_target& target) { return !(target.flags & GALLEY_TARGET_MAY_VARY); }
  static FusedForm piece_of(const Node& node, const galley_target& target) {
    return fused_piece_within(fused_form(node, attention_extents(node), deterministic(target)), architecture(target), target.threads,
                              target.workspace_budget);
  }
  std::vector<FusedCall> calls_;
};

const bool fused_added =
    add(kernel_of<FusedForward>("attention.cudnn", "attention")) && add(kernel_of<FusedGradient>("attention_grad.cudnn", "attention_grad"));

}  // namespace
}  // namespace galley::cuda::attention
