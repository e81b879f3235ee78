// Tables of CUDA kernels, as galley/cpp/plugin.hpp and groups.hpp make them for the CPU; what runs them is given the queue.
//
//   kernel<run>("gelu.cuda", "gelu")                     run(node, workspace, queue) launches
//   kernel_of<Softmax>("cross_entropy.cuda", …)          T::query(node, target, plan), T(node, setup), run(queue)
//   nodes_kernel<Steps>("adamw_step.cuda", …)            the same with sdk::Nodes: groups and chains
//
// All of them ask for sm_80 or later.
#pragma once

#include "galley/cpp/groups.hpp"
#include "galley/cuda/number.hpp"

namespace galley::cuda {

using sdk::add;
using sdk::columns;
using sdk::count;
using sdk::Node;
using sdk::Nodes;
using sdk::rows;
using sdk::unsupported;

namespace detail {

inline void check_architecture(const galley_target& target) {
  if (architecture(target) < 80)
    unsupported(std::string("the architecture ") + (target.isa ? target.isa : "") + ": sm_80 or later is needed");
}
inline const galley_kernel_setup& checked(const galley_kernel_setup& setup) {
  check_platform(setup);
  return setup;
}

/// A kernel's class with these checks around it.
template <class T>
struct OnCuda : T {
  template <class What>
  static void query(const What& what, const galley_target& target, galley_kernel_plan& plan) {
    check_architecture(target);
    T::query(what, target, plan);
  }
  template <class What>
  OnCuda(const What& what, const galley_kernel_setup& setup) : T(what, checked(setup)) {}
};

template <void (*Run)(const Node&, void*, galley_queue*), bool (*Supports)(const Node&),
          int64_t (*Workspace)(const Node&, const galley_target&), int64_t Priority>
class PlainKernel {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if (!Supports(node)) unsupported("dtypes or shapes");
    if constexpr (sdk::kGiven<int64_t (*)(const Node&, const galley_target&), Workspace>) plan.workspace_bytes = Workspace(node, target);
    plan.priority = Priority;
  }
  PlainKernel(const Node& node, const galley_kernel_setup& setup) : node_(node), workspace_(setup.workspace) {}
  void run(galley_queue* queue) const { Run(node_, workspace_, queue); }

 private:
  Node node_;
  void* workspace_;
};

}  // namespace detail

template <class T>
galley_kernel kernel_of(const char* name, const char* op, uint64_t flags = 0) {
  return sdk::kernel_of<detail::OnCuda<T>>(name, op, kDevice, flags);
}
template <class T>
galley_kernel nodes_kernel(const char* name, const char* op, uint64_t flags = GALLEY_KERNEL_GROUPS) {
  return sdk::nodes_kernel<detail::OnCuda<T>>(name, op, kDevice, flags);
}
template <void (*Run)(const Node&, void*, galley_queue*), bool (*Supports)(const Node&) = all_numbers,
          int64_t (*Workspace)(const Node&, const galley_target&) = nullptr, int64_t Priority = 0>
galley_kernel kernel(const char* name, const char* op, uint64_t flags = 0) {
  return kernel_of<detail::PlainKernel<Run, Supports, Workspace, Priority>>(name, op, flags);
}

}  // namespace galley::cuda
