// embedding of a table in the format "brain", and sgd_step with its momentum in it: to the bit what unpacking, the F32 kernel and packing
// give.
#include <cstring>
#include <string>

#include "galley/cpp/groups.hpp"

namespace {

using namespace galley::sdk;

/// The one component of an operand in the format "brain"; nullptr for any other operand.
const galley_operand* bf16(const galley_operand& t) {
  return t.format && galley_same_text(t.format, "brain") && t.n_components == 1 ? t.components[0] : nullptr;
}

float wide(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float out = 0;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

uint16_t narrow(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  const bool number = (bits & 0x7FFFFFFFu) <= 0x7F800000u;
  return static_cast<uint16_t>(number ? (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16 : bits >> 16 | 0x40u);
}

bool reads_table(const Node& node) { return bf16(node.in(1)) != nullptr; }
void embedding(const Node& node, void*) {
  const int32_t* ids = node.read<int32_t>(0);
  const auto* table = static_cast<const uint16_t*>(bf16(node.in(1))->data);
  float* y = node.write<float>(0);
  const int64_t C = columns(node.in(1)), V = node.in(1).shape[0];
  for (int64_t r = 0; r < count(node.in(0)); ++r) {
    if (ids[r] < 0 || ids[r] >= V) invalid(std::string(node.name()) + ": id " + std::to_string(ids[r]));
    for (int64_t c = 0; c < C; ++c) y[r * C + c] = wide(table[ids[r] * C + c]);
  }
}

bool keeps_momentum(const Node& node) {
  return node.has(6) && bf16(node.in(6)) && bf16(node.in(6))->access == GALLEY_READ_WRITE && !node.in(0).format &&
         node.i("nesterov", 0) == 0;
}
void sgd_step(const Node& node) {
  if (!*node.read<int32_t>(5)) return;
  const float lr = *node.read<float>(2), factor = *node.read<float>(4), momentum = static_cast<float>(node.f("momentum", 0)),
              part = static_cast<float>(1.0 - node.f("dampening", 0)), decay = static_cast<float>(node.f("weight_decay", 0));
  const bool first = *node.read<int64_t>(3) == 1;
  float* p = node.update<float>(0);
  const float* gradient = node.read<float>(1);
  auto* buffer = static_cast<uint16_t*>(bf16(node.in(6))->data);
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    const float g = factor * gradient[i] + decay * p[i];
    const float b = first ? g : momentum * wide(buffer[i]) + part * g;
    buffer[i] = narrow(b);
    p[i] = p[i] - lr * b;
  }
}

/// The steps of any number of parameters.
class Steps {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    if (!std::all_of(nodes.begin(), nodes.end(), keeps_momentum)) unsupported("momentum that is not in brain");
  }
  Steps(const Nodes& nodes, const galley_kernel_setup&) : nodes_(nodes) {}
  void run() const {
    for (const Node& node : nodes_) sgd_step(node);
  }

 private:
  Nodes nodes_;
};

galley_kernel reads_formats(galley_kernel kernel) {
  kernel.flags |= GALLEY_KERNEL_FORMATS;
  return kernel;
}

const bool registered = add(reads_formats(kernel<embedding, reads_table>("embedding.bf16", "embedding"))) &&
                        add(reads_formats(nodes_kernel<Steps>("sgd_step.bf16", "sgd_step")));

}  // namespace

GALLEY_PLUGIN("bf16-kernels", "1.0.0");
