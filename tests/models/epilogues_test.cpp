// Chains of a product and an activation that round once, after both (models/ops/linear/cuda_chains.cu): against the references of their
// links, and which nodes they take.
#include <gtest/gtest.h>

#include <cmath>

#include "galley/cpp/node.hpp"
#include "tests/models/near.hpp"
#include "tests/models/together.hpp"

namespace galley::test {
namespace {

using Between = Linked::Between;

/// A product, and an activation of it.
struct Links {
  Problem product, activation;
  Between between = Between::NoMemory;
  std::vector<uint32_t> access = {};  ///< of the activation's output

  Links(const char* op, uint32_t dtype, int64_t rows, int64_t K, int64_t N, const char* then, const sdk::Attrs& attrs,
        const sdk::Attrs& then_attrs, std::mt19937_64& random, uint32_t bias = 0) {
    const bool back = std::string(op) == "linear_dx", t = attrs.count() > 0;
    product.op = models().op(op);
    product.name = "product";
    product.attrs = attrs.data();
    product.n_attrs = attrs.count();
    product.inputs = {draw(dtype, {rows, back ? N : K}, random), draw(dtype, t ? std::vector{K, N} : std::vector{N, K}, random)};
    if (!back) product.inputs.emplace_back(bias ? std::optional(draw(bias, {N}, random)) : std::nullopt);
    product.infer();
    activation.op = models().op(then);
    activation.name = "activation";
    activation.attrs = then_attrs.data();
    activation.n_attrs = then_attrs.count();
    activation.inputs = {product.outputs[0]};
    if (back) activation.inputs.emplace_back(draw(dtype, {rows, K}, random));
    else if (std::string(then) == "add") activation.inputs.emplace_back(draw(dtype, product.outputs[0]->shape, random));
    activation.infer();
  }
};

struct Made {
  galley_status status;
  std::string text;
  std::vector<double> product, y;
};

Made make(const Level& level, const Links& links, int64_t off = 0) {
  const galley_kernel* const chain = level.kernel(std::string(links.product.op->name) + ">" + links.activation.op->name);
  if (!chain) return {GALLEY_UNSUPPORTED, "no chain", {}, {}};
  const Linked linked(links.product, links.activation, 0, links.between, off);
  const Launch r = linked.run(chain, level.isa, links.access, links.access.empty() ? 2 : 1);
  EXPECT_TRUE(r.workspace.intact() && r.constants.intact() && linked.intact());
  Made made = {r.status, r.text, {}, {}};
  const Tensor &product = *links.product.outputs[0], &y = *links.activation.outputs[0];
  if (links.between == Between::Kept) made.product = unpack(linked.one.outputs[0], product.dtype, product.count());
  made.y = unpack(linked.two.outputs[0], y.dtype, y.count());
  return made;
}

/// Beside what a bias of up to 1 that is rounded on the way may change. cuBLASLt itself may round what lies between the links: on an H100,
/// 13.0 does so before GELU's gradient and before some sums.
Rounded between(const Level& level, uint32_t dtype, bool bias, const std::vector<double>& y) {
  Rounded out = {dtype, 1, std::vector<double>(y.size(), bias)};
  for (size_t i = 0; level.isa.starts_with("sm_") && i < y.size(); ++i) out.sizes[i] += 1 + std::fabs(y[i]);
  return out;
}

/// A GPU's, or the emulated one's; CPUs round between the links (groups_test.cpp).
const Level& gpu() {
  for (const Level& level : models().levels)
    if (level.kernel("linear_dx>gelu_grad")) return level;
  throw std::runtime_error("no kernels for GPUs");
}

class Epilogues : public testing::Test {
 protected:
  void SetUp() override {
    set_threads(2);
    by_tanh.s("approximate", "tanh");
    transposed.i("transposed", 1);
    to_f32.s("dtype", "f32");
  }
  std::mt19937_64 random{seed()};
  sdk::Attrs none, by_tanh, transposed, to_f32;
};

TEST_F(Epilogues, ComputeWhatTheirLinksDo) {
  struct Chain {
    const char *op, *then;
    const sdk::Attrs* attrs;
  };
  for (const Chain& chain : {Chain{"linear", "gelu", &by_tanh}, Chain{"linear_dx", "gelu_grad", &by_tanh}, Chain{"linear", "relu", &none},
                             Chain{"linear", "add", &none}})
    for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
      for (const sdk::Attrs* attrs : {&none, &transposed})
        for (const uint32_t bias : {0u, GALLEY_F32, GALLEY_BF16, GALLEY_F16})
          for (const auto& [rows, K, N] : {std::tuple{1, 8, 16}, {37, 72, 136}, {70, 200, 24}, {33, 16, 72}}) {
            if (dtype == GALLEY_F32 && chain.attrs == &by_tanh) continue;
            if (std::string(chain.then) == "add" && 2 * K > N) continue;
            if (bias && std::string(chain.op) == "linear_dx") continue;
            SCOPED_TRACE(std::string(chain.op) + ">" + chain.then + " of " + std::to_string(dtype) + ", bias " + std::to_string(bias) +
                         ", " + std::to_string(rows) + " rows, GALLEY_TEST_SEED=" + std::to_string(seed()));
            Links links(chain.op, dtype, rows, K, N, chain.then, *attrs, *chain.attrs, random, bias);
            Problem product = links.product, activation = links.activation;
            run_reference(product);
            activation.inputs[0]->values = product.outputs[0]->values;
            run_reference(activation);
            const Made made = make(gpu(), links);
            ASSERT_EQ(made.status, GALLEY_OK) << made.text;
            const std::vector<double>& y = activation.outputs[0]->values;
            expect_near(made.y, y, dtype, "y", between(gpu(), dtype, bias, y));
            const Made elsewhere = make(gpu(), links, 16);
            EXPECT_EQ(made.y, elsewhere.y);
            links.between = Between::Kept;
            const Made kept = make(gpu(), links);
            if (std::string(chain.then) != "gelu") {
              EXPECT_EQ(kept.status, GALLEY_UNSUPPORTED);
              continue;
            }
            ASSERT_EQ(kept.status, GALLEY_OK) << kept.text;
            EXPECT_EQ(kept.y, made.y);
            const std::vector<double>& wanted = product.outputs[0]->values;
            expect_near(kept.product, wanted, dtype, "product", between(gpu(), dtype, bias, wanted));
          }
}

TEST_F(Epilogues, RefuseWhatTheyWouldMakeDifferently) {
  const auto refusal = [&](const Links& links) {
    const Made made = make(gpu(), links);
    EXPECT_EQ(made.status, GALLEY_UNSUPPORTED);
    return made.text;
  };
  EXPECT_EQ(refusal({"linear", GALLEY_BF16, 3, 8, 16, "gelu", none, none, random}), "GELU is cublaslt's only by tanh");
  EXPECT_EQ(refusal({"linear", GALLEY_F32, 3, 8, 16, "gelu", none, by_tanh, random}), "GELU in F32");
  EXPECT_EQ(refusal({"linear", GALLEY_BF16, 3, 8, 12, "gelu", none, by_tanh, random}),
            "cublaslt keeps what GELU is applied to in rows of multiples of 8");
  EXPECT_EQ(refusal({"linear", GALLEY_BF16, 3, 8, 16, "relu", none, to_f32, random}), "an activation into another dtype");
  Links sum("linear_dx", GALLEY_BF16, 3, 8, 16, "gelu_grad", none, by_tanh, random);
  sum.access = {GALLEY_ACCUMULATE};
  EXPECT_EQ(refusal(sum), "a sum");
  sdk::Attrs half;
  half.f("alpha", 0.5);
  EXPECT_EQ(refusal({"linear", GALLEY_BF16, 3, 8, 16, "add", none, half, random}), "a sum of more");
  EXPECT_EQ(refusal({"linear", GALLEY_BF16, 3, 264, 16, "add", none, none, random}), "only thin products go into a sum");
}

}  // namespace
}  // namespace galley::test
