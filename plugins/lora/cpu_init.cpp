// The ops of init.cpp on the CPU. lora_principal reads W once for each vector of the Lanczos process, in double: some hundred times. It is
// computed here for runs on other devices too (GALLEY_OP_LOAD_ON_HOST).
#include "init.hpp"

namespace {

using namespace galley::sdk;
using namespace galley::lora;

void run_principal(const Node& node, void*) {
  const int64_t n = node.out(0).shape[0], k = node.out(1).shape[1];
  by_dtype(node.in(0), [&](const auto* numbers) {
    const bool transposed = node.i("transposed", 0) != 0;
    const Weight w(numbers, n, k, transposed);
    if (node.has(1)) begin(node, Rest(w, Weight(node.read<float>(1), n, k, transposed)), node.write<float>(0), node.write<float>(1));
    else begin(node, w, node.write<float>(0), node.write<float>(1));
  });
}
bool of_numbers(const Node& node) {
  const uint32_t dtype = node.in(0).dtype;
  return dtype == GALLEY_F32 || dtype == GALLEY_BF16 || dtype == GALLEY_F16;
}

void run_both(const Node& node, void*) {
  const galley_operand &a = node.in(0), &b = node.in(1);
  const auto factor = static_cast<float>(node.f("factor", 1));
  const bool beside = node.i("columns", 0) != 0;
  const int64_t of_a = beside ? a.shape[1] : count(a), of_b = beside ? b.shape[1] : count(b);
  float* to = node.write<float>(0);
  for (int64_t r = 0; r < (beside ? a.shape[0] : 1); ++r) {
    to = std::copy_n(node.read<float>(0) + r * of_a, of_a, to);
    for (int64_t i = 0; i < of_b; ++i) *to++ = factor * node.read<float>(1)[r * of_b + i];
  }
}

const bool added =
    add(kernel<run_principal, of_numbers>("lora_principal.cpu", "lora_principal")) && add(kernel<run_both>("lora_both.cpu", "lora_both"));

}  // namespace
