// Kernels of groups and chains: the bytes that the nodes have alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "galley/cpp/groups.hpp"
#include "tests/models/together.hpp"

namespace galley::test {
namespace {

/// A product by instructions for BF16, which no chain takes.
bool by_pairs(const Level& level, const Problem& problem) {
  const std::string name = chosen(level, problem)->name;
  return name == "linear.amx" || name == "linear.avx512_bf16";
}

/// Products of one input: rows, its columns, the columns of each product.
struct Shared {
  int64_t rows, K;
  std::vector<int64_t> N;
};
const std::vector<Shared> shared = {{128, 192, {192, 64, 64}}, {37, 67, {129, 33}},  {300, 1030, {8, 8, 8, 200}}, {65, 96, {4, 64, 16}},
                                    {1, 64, {16, 300}},        {513, 40, {1100, 8}}, {33, 64, {16, 8, 16, 8}}};

struct Products {
  const char* op;
  uint32_t dtype;
  bool transposed, bias;
};

/// The problems of a group: of "linear" with x in common, of "linear_dx" with nothing, of "linear_dw" with x.
std::vector<Problem> products(const Products& of, const Shared& s, const sdk::Attrs& attrs, std::mt19937_64& random) {
  std::vector<Problem> out;
  const Tensor x = draw(of.dtype, {s.rows, s.K}, random);
  for (const int64_t N : s.N) {
    Problem& p = out.emplace_back();
    p.op = models().op(of.op);
    p.name = std::to_string(s.rows) + " x " + std::to_string(s.K) + " to " + std::to_string(N);
    p.attrs = attrs.data();
    p.n_attrs = attrs.count();
    const Tensor w = draw(of.dtype, of.transposed ? std::vector{s.K, N} : std::vector{N, s.K}, random),
                 dy = draw(of.dtype, {s.rows, N}, random);
    if (p.op->name == std::string("linear")) p.inputs = {x, w, {}};
    else if (p.op->name == std::string("linear_dx")) p.inputs = {dy, w};
    else p.inputs = {dy, x};
    if (p.op->name == std::string("linear") && of.bias) p.inputs[2] = draw(GALLEY_F32, {N}, random);
    p.infer();
  }
  return out;
}

TEST(Groups, HaveTheBytesOfTheirNodes) {
  std::mt19937_64 random(seed());
  int groups = 0;
  on_all_levels([&](const Level& level, bool) {
    for (const galley_kernel* kernel : level.kernels) {
      const galley_op* op = models().op(kernel->op);
      // Steps whose operands are in formats: stored_steps_test.cpp. A weight that has to be in one: int8_rows_test.cpp.
      const std::string_view name = kernel->name;
      const bool stored = name.find("_stored") != std::string_view::npos || name == "linear_int8.codes";
      if (!op || !(kernel->flags & GALLEY_KERNEL_GROUPS) || stored) continue;
      SCOPED_TRACE(kernel->name);
      std::vector<Problem> problems;
      for (uint32_t k = 0; k < op->n_cases; ++k) problems.push_back(Problem::draw(op, *op->cases[k], random));
      expect_same_as_alone(level, kernel, problems);
      ++groups;
    }
  });
  EXPECT_GT(groups, 0);
}

TEST(Groups, OfProductsHaveTheBytesOfTheirNodes) {
  std::mt19937_64 random(seed());
  on_all_levels([&](const Level& level, bool only_bf16) {
    for (const char* op : {"linear", "linear_dx", "linear_dw"})
      for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
        for (const bool transposed : {false, true}) {
          sdk::Attrs attrs;
          attrs.i("transposed", transposed);
          if (only_bf16 && dtype != GALLEY_BF16) continue;
          if (dtype == GALLEY_F16 && !std::getenv("GALLEY_TEST_ALL")) continue;  // as BF16
          const auto& kernels = level.kernels;
          const auto several = std::find_if(kernels.begin(), kernels.end(), [&](const galley_kernel* k) {
            return k->op == std::string(op) && k->flags & GALLEY_KERNEL_GROUPS;
          });
          ASSERT_NE(several, kernels.end());
          for (const Shared& s : shared) {
            const bool adds = (&s - shared.data() + transposed) % 2 != 0;
            SCOPED_TRACE(std::string(op) + " of " + std::to_string(dtype) + (transposed ? ", transposed" : "") + (adds ? ", added" : ""));
            const std::vector<Problem> problems = products({op, dtype, transposed, !adds}, s, attrs, random);
            std::vector<How> how(problems.size());
            for (size_t i = 0; adds && i < problems.size(); ++i) {
              const Tensor& out = *problems[i].outputs[0];
              how[i].access = {GALLEY_ACCUMULATE};
              how[i].initial = {draw(out.dtype, out.shape, random).values};
            }
            expect_same_as_alone(level, *several, problems, how);
          }
        }
  });
}

// Products that one call could make, were it not for one of them.
TEST(Groups, OfProductsThatDifferHaveTheBytesOfTheirNodes) {
  std::mt19937_64 random(seed());
  sdk::Attrs none, transposed, to_bf16;
  transposed.i("transposed", 1);
  to_bf16.s("dtype", "bf16");
  struct Kind {
    uint32_t dtype;
    int64_t rows, N, K;
    const sdk::Attrs* attrs;
    bool adds;
  };
  std::vector<Kind> kinds = {{GALLEY_BF16, 24, 16, 16, &none, false}};
  kinds.resize(7, kinds[0]);
  kinds[0].dtype = GALLEY_F16;
  kinds[1].rows = 25;
  kinds[2].N = 8;
  kinds[3].K = 8;
  kinds[4].attrs = &transposed;
  kinds[5].attrs = &to_bf16;
  kinds[6].adds = true;
  kinds.resize(9, {GALLEY_BF16, 24, 16, 16, &none, false});
  on_all_levels([&](const Level& level, bool) {
    const auto several = std::find_if(level.kernels.begin(), level.kernels.end(), [](const galley_kernel* k) {
      return k->op == std::string("linear_dw") && k->flags & GALLEY_KERNEL_GROUPS;
    });
    ASSERT_NE(several, level.kernels.end());
    for (const bool again : {false, true}) {
      if (again) std::rotate(kinds.begin(), kinds.end() - 2, kinds.end());
      std::vector<Problem> problems;
      std::vector<How> how(kinds.size());
      for (size_t i = 0; i < kinds.size(); ++i) {
        const Kind& kind = kinds[i];
        Problem& p = problems.emplace_back();
        p.op = models().op("linear_dw");
        p.name = "product " + std::to_string(i);
        p.attrs = kind.attrs->data();
        p.n_attrs = kind.attrs->count();
        p.inputs = {draw(kind.dtype, {kind.rows, kind.N}, random), draw(kind.dtype, {kind.rows, kind.K}, random)};
        p.infer();
        const Tensor& out = *p.outputs[0];
        if (kind.adds) how[i] = {{GALLEY_ACCUMULATE}, {draw(out.dtype, out.shape, random).values}, {}};
      }
      expect_same_as_alone(level, *several, problems, how);
    }
  });
}

/// Whether a chain takes what others read.
enum class Keeps { No, Yes };

/// A chain's bytes are those of its links: with what lies between in memory, which others may read, and without. `place`: which input of
/// `second` it is.
void expect_same_as_links(const Level& level, const std::string& links, const Problem& first, Problem second, size_t place, Keeps keeps) {
  const auto chain = level.kernel(links);
  ASSERT_NE(chain, nullptr) << links;
  const Execution made = alone(level, first);
  second.inputs[place]->values = unpack(made.outputs[0].data(), first.outputs[0]->dtype, first.outputs[0]->count());
  const Execution read = alone(level, second);
  for (const bool kept : {true, false}) {
    SCOPED_TRACE(links + " of " + first.name + " and " + second.name + (kept ? ", kept" : ""));
    const Linked linked(first, second, place, kept ? Linked::Between::Kept : Linked::Between::NoMemory);
    const Launch ran = linked.run(chain, level.isa);
    EXPECT_TRUE(ran.workspace.intact() && ran.constants.intact());
    if ((kept && keeps == Keeps::No) || (by_pairs(level, first) && links != "linear>add")) {
      EXPECT_EQ(ran.status, GALLEY_UNSUPPORTED);
      continue;
    }
    ASSERT_EQ(ran.status, GALLEY_OK) << ran.text;
    EXPECT_TRUE(!kept || linked.one.same(made));
    const std::vector<Memory>& memory = linked.two.memory;
    for (size_t i = 0; i < memory.size(); ++i)
      if (i != place) {
        const Memory& other = i < read.inputs.size() ? read.inputs[i] : read.outputs[i - read.inputs.size()];
        EXPECT_TRUE(memory[i].intact() && std::memcmp(memory[i].data(), other.data(), static_cast<size_t>(other.bytes())) == 0);
      }
  }
}

TEST(Chains, OfSumAndNormHaveTheBytesOfTheirLinks) {
  std::mt19937_64 random(seed());
  on_all_levels([&](const Level& level, bool) {
    for (const std::string name : {"layer_norm", "rms_norm"}) {
      const galley_op *add = models().op("add"), *norm = models().op(name);
      for (uint32_t k = 0; k < norm->n_cases; ++k) {
        const Problem normed = Problem::draw(norm, *norm->cases[k], random);
        Problem sum;
        sum.op = add;
        sum.name = "sum";
        sum.inputs = {normed.inputs[0], normed.inputs[0]};
        std::reverse(sum.inputs[1]->values.begin(), sum.inputs[1]->values.end());
        sum.infer();
        expect_same_as_links(level, "add>" + name, sum, normed, 0, Keeps::Yes);
      }
    }
  });
}

/// A product is added to another tensor where it is thin; the sum has the bits that it has by itself.
TEST(Chains, OfThinProductAndSumHaveTheBytesOfTheirLinks) {
  std::mt19937_64 random(seed());
  on_all_levels([&](const Level& level, bool only_bf16) {
    if (level.isa.rfind("x86", 0) != 0) return;  // on a GPU the product is not rounded by itself: epilogues_test.cpp
    size_t place = 0;
    const auto with_sum = [&](const Problem& product) {
      if (only_bf16 && product.inputs[0]->dtype != GALLEY_BF16) return;
      const int64_t terms = product.inputs[0]->shape.back();
      if (terms > 256 || 2 * terms > product.outputs[0]->shape.back()) return;
      Problem sum;
      sum.op = models().op("add");
      sum.name = "sum";
      sum.inputs = {product.outputs[0], product.outputs[0]};
      for (auto& input : sum.inputs) input = draw(input->dtype, input->shape, random);
      sum.infer();
      expect_same_as_links(level, "linear>add", product, sum, place++ % 2, Keeps::No);
    };
    const galley_op* linear = models().op("linear");
    for (uint32_t k = 0; k < linear->n_cases; ++k) with_sum(Problem::draw(linear, *linear->cases[k], random));
    for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
      for (const auto& [rows, rank, columns] :
           {std::tuple<int64_t, int64_t, int64_t>{300, 8, 768}, {37, 4, 67}, {256, 16, 2304}, {1, 1, 33}}) {
        sdk::Attrs none;
        Problem p;
        p.op = linear;
        p.name = "product of rank " + std::to_string(rank);
        p.attrs = none.data();
        p.n_attrs = 0;
        p.inputs = {draw(dtype, {rows, rank}, random), draw(dtype, {columns, rank}, random), std::nullopt};
        p.infer();
        with_sum(p);
      }
  });
}

/// The activation of a product; of "swiglu", the product is input `place`.
Problem activation(const std::string& op, const Problem& product, size_t place, const sdk::Attrs& attrs, std::mt19937_64& random) {
  Problem p;
  p.op = models().op(op);
  p.name = op + " " + std::to_string(place);
  p.inputs.assign(op == "swiglu" ? 2 : 1, product.outputs[0]);
  for (auto& input : p.inputs) input = draw(input->dtype, input->shape, random);
  p.attrs = attrs.data();
  p.n_attrs = attrs.count();
  p.infer();
  return p;
}

TEST(Chains, OfProductAndActivationHaveTheBytesOfTheirLinks) {
  std::mt19937_64 random(seed());
  sdk::Attrs none, by_tanh, to_f32, to_bf16, gelu_gate;
  by_tanh.s("approximate", "tanh");
  gelu_gate.s("activation", "gelu_tanh");
  to_f32.s("dtype", "f32");
  to_bf16.s("dtype", "bf16");
  struct Kind {
    const char* op;
    size_t place;
    const sdk::Attrs* attrs;
  };
  const std::vector<Kind> kinds = {{"gelu", 0, &none},     {"gelu", 0, &by_tanh}, {"silu", 0, &none},       {"relu", 0, &to_f32},
                                   {"swiglu", 0, &none},   {"swiglu", 1, &none},  {"gelu", 0, &to_f32},     {"silu", 0, &to_bf16},
                                   {"swiglu", 1, &to_f32}, {"relu", 0, &none},    {"swiglu", 0, &gelu_gate}};
  size_t next = 0;
  on_all_levels([&](const Level& level, bool only_bf16) {
    // A kind for each product, and all of them in turn.
    const auto one_of = [&](const Problem& product) {
      if (only_bf16 && product.inputs[0]->dtype != GALLEY_BF16) return;
      const Kind& kind = kinds[next++ % kinds.size()];
      const Problem link = activation(kind.op, product, kind.place, *kind.attrs, random);
      // On a GPU, what lies between is not rounded (epilogues_test.cpp). That changes nothing before ReLU.
      if (level.isa.rfind("x86", 0) != 0 && (kind.op != std::string("relu") || link.outputs[0]->dtype != product.outputs[0]->dtype)) return;
      expect_same_as_links(level, std::string("linear>") + kind.op, product, link, kind.place, Keeps::No);
    };
    const galley_op* linear = models().op("linear");
    for (uint32_t k = 0; k < linear->n_cases; ++k) one_of(Problem::draw(linear, *linear->cases[k], random));
    for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
      for (const bool transposed : {false, true}) {
        sdk::Attrs attrs;
        attrs.i("transposed", transposed);
        for (const Shared& s : shared)
          for (const Problem& product : products({"linear", dtype, transposed, true}, s, attrs, random)) one_of(product);
      }
  });
}

// A gate and what it multiplies in one product: the chain passes blocks of columns on, and does not have both.
TEST(Chains, OfAProductTakeNoGateBesideWhatItMultiplies) {
  std::mt19937_64 random(seed());
  const sdk::Attrs none;
  bool refused = false, processors = false;
  for (const Level& level : models().levels) {
    processors |= level.isa.rfind("x86", 0) == 0;
    const galley_kernel* const chain = level.kernel("linear>swiglu");
    if (!chain) continue;
    Problem product, gated;
    product.op = models().op("linear");
    product.name = "product";
    product.inputs = {draw(GALLEY_F32, {12, 40}, random), draw(GALLEY_F32, {96, 40}, random), std::nullopt};
    product.infer();
    gated.op = models().op("swiglu");
    gated.name = "gated";
    gated.inputs = {draw(GALLEY_F32, {12, 96}, random), std::nullopt};
    gated.infer();
    const Launch ran = Linked(product, gated, 0, Linked::Between::NoMemory).run(chain, level.isa);
    EXPECT_EQ(ran.status, GALLEY_UNSUPPORTED);
    EXPECT_EQ(ran.text, "a gate beside what it multiplies, in one product");
    refused = true;
  }
  EXPECT_EQ(refused, processors) << "GPUs have no such chain";
}

}  // namespace
}  // namespace galley::test
