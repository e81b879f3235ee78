// Products whose weight is in a format: the bytes that the same way to multiply gives with the numbers that the format's codes stand for,
// alone, in groups and with an activation after them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "galley/cpp/int8_rows.hpp"
#include "galley/cpp/node.hpp"
#include "plugins/quantize-gguf/gguf_blocks.hpp"
#include "plugins/quantize-nf4/four_bit_codes.hpp"
#include "tests/models/together.hpp"

namespace galley::test {
namespace {

struct FourBit {
  const char* type;
  int64_t block;
  bool doubled;
};
constexpr const char* kInt8 = "int8";  // "int8-rows", with scales for rows, or, by a block of 1, for columns
constexpr FourBit four_bits[] = {{"nf4", 64, false}, {"nf4", 64, true}, {"fp4", 128, true},
                                 {"fp4", 32, false}, {kInt8, 0, false}, {kInt8, 1, false}};

/// A weight in the format, with memory of its own, and its numbers in a dtype.
class CodedWeight {
 public:
  CodedWeight(const FourBit& format, uint32_t dtype, const std::vector<int64_t>& shape, std::mt19937_64& random)
      : numbers(draw(dtype, shape, random)) {
    if (format.type == kInt8) {
      make_int8(format.block != 0);
      return;
    }
    if (const gguf_blocks::Type type = gguf_blocks::type_named(format.type); type != gguf_blocks::kTypes) {
      make_blocks(type, random);
      return;
    }
    attrs_.s("type", format.type).i("block", format.block).i("double", format.doubled);
    const four_bit::Options options(attrs_.data(), attrs_.count());
    const int64_t n = numbers.count(), blocks = options.blocks(n);
    const std::vector<float> x(numbers.values.begin(), numbers.values.end());
    add(GALLEY_U8, {(n + 1) / 2, 1});
    add(format.doubled ? GALLEY_U8 : GALLEY_F32, {blocks});
    if (format.doubled) add(GALLEY_F32, {options.nested(n)}), add(GALLEY_F32, {1});
    std::vector<float> absmax(static_cast<size_t>(blocks));
    for (int64_t b = 0; b < blocks; ++b)
      absmax[static_cast<size_t>(b)] = four_bit::encode(x.data() + b * options.block, std::min(options.block, n - b * options.block),
                                                        options.block, options.type, at<uint8_t>(0) + b * options.block / 2);
    if (!format.doubled) {
      std::memcpy(at<float>(1), absmax.data(), absmax.size() * sizeof(float));
    } else {
      *at<float>(3) = four_bit::offset_of(absmax.data(), blocks);
      for (int64_t b = 0; b < blocks; b += four_bit::kNested)
        at<float>(2)[b / four_bit::kNested] =
            four_bit::encode_nested(absmax.data() + b, std::min(four_bit::kNested, blocks - b), *at<float>(3), at<uint8_t>(1) + b);
    }
    for (const galley_operand& c : components_) pointers_.push_back(&c);
    std::vector<float> decoded(static_cast<size_t>(n));
    four_bit::decode(four_bit::Coded(pointers_.data(), options), 0, n, decoded.data());
    for (int64_t i = 0; i < n; ++i) numbers.values[static_cast<size_t>(i)] = rounded(decoded[static_cast<size_t>(i)], dtype);
  }
  CodedWeight(const CodedWeight&) = delete;

  /// The operand in the place of one with its numbers.
  galley_operand operand(const galley_operand& plain, const Level& level) const {
    galley_operand out = plain;
    out.data = nullptr;
    out.format = name_;
    out.codec = level.codec(name_);
    out.components = pointers_.data();
    out.n_components = static_cast<uint32_t>(pointers_.size());
    out.attrs = attrs_.data();
    out.n_attrs = attrs_.count();
    return out;
  }
  bool intact() const {
    return std::all_of(memory_.begin(), memory_.end(), [](const Memory& m) { return m.intact(); });
  }

  Tensor numbers;

 private:
  void make_int8(bool columns) {
    namespace int8_rows = sdk::int8_rows;
    name_ = int8_rows::kName;
    attrs_.i("columns", columns);
    const int64_t R = numbers.shape[0], C = numbers.shape[1];
    add(GALLEY_I8, {R, C});
    add(GALLEY_F32, {columns ? C : R});
    const auto scale_of = [&](int64_t i) -> float& { return at<float>(1)[columns ? i % C : i / C]; };
    for (int64_t i = 0; i < R * C; ++i)
      scale_of(i) = std::max(scale_of(i), std::abs(static_cast<float>(numbers.values[static_cast<size_t>(i)])));
    for (int64_t i = 0; i < R * C; ++i) {
      double& number = numbers.values[static_cast<size_t>(i)];
      const int8_t code = at<int8_t>(0)[i] = int8_rows::code(static_cast<float>(number), int8_rows::inverse(scale_of(i)));
      number = rounded(int8_rows::value(code, int8_rows::unit(scale_of(i))), numbers.dtype);
    }
    for (const galley_operand& c : components_) pointers_.push_back(&c);
  }
  /// Of random bytes, but for scales: every bit of a code occurs.
  void make_blocks(gguf_blocks::Type type, std::mt19937_64& random) {
    name_ = gguf_blocks::kName;
    attrs_.s("type", gguf_blocks::kTypeNames[type]);
    const int64_t n = numbers.count(), of_block = gguf_blocks::numbers_of(type), bytes = gguf_blocks::bytes_of(type);
    add(GALLEY_U8, {numbers.shape[0], numbers.shape[1] / of_block * bytes});
    uint8_t* const blocks = at<uint8_t>(0);
    for (int64_t i = 0; i < n / of_block * bytes; ++i) blocks[i] = static_cast<uint8_t>(random());
    for (int64_t b = 0; b < n / of_block; ++b) {
      uint8_t* const block = blocks + b * bytes;
      // F16 from 2⁻¹¹ to 2⁻⁹, of either sign.
      const auto scale = [&](int64_t where) { block[where + 1] = static_cast<uint8_t>((random() & 0x80) | 0x10 | (random() & 7)); };
      scale(type == gguf_blocks::kQ6_K ? 208 : 0);
      if (type == gguf_blocks::kQ4_1 || type == gguf_blocks::kQ5_1 || type == gguf_blocks::kQ4_K || type == gguf_blocks::kQ5_K) scale(2);
      for (int i = 0; i < of_block; ++i)
        numbers.values[static_cast<size_t>(b * of_block + i)] =
            rounded(gguf_blocks::value(gguf_blocks::scale_of(type, block, i), gguf_blocks::code_of(type, block, i)), numbers.dtype);
    }
    for (const galley_operand& c : components_) pointers_.push_back(&c);
  }
  template <class T>
  T* at(size_t k) {
    return reinterpret_cast<T*>(memory_[k].data());
  }
  void add(uint32_t dtype, std::vector<int64_t> shape) {
    const std::vector<int64_t>& kept = extents_.emplace_back(std::move(shape));
    int64_t bytes = galley_dtype_bytes(dtype);
    for (const int64_t extent : kept) bytes *= extent;
    memory_.emplace_back(bytes, 0);
    components_.push_back(
        sdk::operand(memory_.back().data(), kept.data(), static_cast<uint32_t>(kept.size()), dtype, GALLEY_READ, "component"));
  }

  const char* name_ = four_bit::kName;
  sdk::Attrs attrs_;
  std::deque<std::vector<int64_t>> extents_;
  std::deque<Memory> memory_;
  std::deque<galley_operand> components_;
  std::vector<const galley_operand*> pointers_;
};

/// A problem's node, whose input 1 is a weight in a format.
struct CodedNode {
  CodedNode(const Level& level, const Problem& problem, const CodedWeight* weight, const How& how = {})
      : placed(problem, how), view_(problem, placed.inputs, placed.outputs, how.access, false), node(*view_.node()) {
    if (!weight) return;
    inputs_.assign(node.inputs, node.inputs + node.n_inputs);
    operand_ = weight->operand(*inputs_[1], level);
    inputs_[1] = &operand_;
    node.inputs = inputs_.data();
  }
  CodedNode(const CodedNode&) = delete;
  Placed placed;

 private:
  View view_;
  galley_operand operand_ = {};
  std::vector<const galley_operand*> inputs_;

 public:
  galley_node_view node;
};

galley_status query_of(const galley_kernel* kernel, const Level& level, const std::vector<const galley_node_view*>& nodes,
                       int64_t* priority) {
  const galley_target target = target_for(level.isa);
  auto plan = sdk::fresh<galley_kernel_plan>();
  galley_error error = GALLEY_ERROR_INIT;
  const galley_status status = kernel->query(kernel->self, nodes.data(), static_cast<uint32_t>(nodes.size()), &target, &plan, &error);
  *priority = plan.priority;
  return status;
}

/// The kernel that the host chooses for this node alone.
const galley_kernel* chosen_for(const Level& level, const char* op, const galley_node_view& node) {
  const galley_kernel* best = nullptr;
  int64_t most = 0, priority = 0;
  for (const galley_kernel* kernel : level.kernels) {
    if (std::strcmp(kernel->op, op) != 0 || !(kernel->flags & GALLEY_KERNEL_FORMATS)) continue;
    if (query_of(kernel, level, {&node}, &priority) != GALLEY_OK || (best && priority <= most)) continue;
    best = kernel;
    most = priority;
  }
  return best;
}

/// What the problem gives by this kernel with its numbers as they are, in memory like that of the node.
bool same_as_plain(const galley_kernel* kernel, const Level& level, const CodedNode& node) {
  const Execution plain = execute(kernel, level.isa, node.placed.problem, node.placed.how);
  EXPECT_EQ(plain.status, GALLEY_OK) << plain.text;
  const size_t outputs = node.placed.problem.inputs.size();
  return node.placed.same(plain, outputs);
}

struct Layer {
  int64_t rows, K, N;
};

Problem problem_of(const char* op, const Layer& s, const CodedWeight& weight, const sdk::Attrs& attrs, bool bias, std::mt19937_64& random) {
  Problem p;
  p.op = models().op(op);
  p.name = std::string(op) + " " + std::to_string(s.rows) + ", " + std::to_string(s.K) + " to " + std::to_string(s.N);
  p.attrs = attrs.data();
  p.n_attrs = attrs.count();
  const bool forward = p.op->name == std::string("linear");
  p.inputs = {draw(weight.numbers.dtype, {s.rows, forward ? s.K : s.N}, random), weight.numbers};
  if (forward) p.inputs.emplace_back();
  if (forward && bias) p.inputs[2] = draw(GALLEY_F32, {s.N}, random);
  p.infer();
  return p;
}

/// Of each op, in each dtype and both ways that a weight may lie.
void compare_with_plain(const std::vector<Layer>& layers, const std::vector<FourBit>& formats) {
  std::mt19937_64 random(seed());
  on_all_levels([&](const Level& level, bool only_bf16) {
    for (const char* op : {"linear", "linear_dx"})
      for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
        for (const bool transposed : {false, true}) {
          if (only_bf16 && dtype != GALLEY_BF16) continue;
          for (size_t number = 0; number < layers.size(); ++number) {
            const Layer& s = layers[number];
            const FourBit& format = formats[(number + transposed) % formats.size()];
            sdk::Attrs attrs;
            attrs.i("transposed", transposed);
            const bool adds = number % 3 == 1;
            if (adds && dtype != GALLEY_F32) attrs.s("dtype", "f32");
            const CodedWeight weight(format, dtype, transposed ? std::vector{s.K, s.N} : std::vector{s.N, s.K}, random);
            const Problem problem = problem_of(op, s, weight, attrs, number % 2, random);
            SCOPED_TRACE(problem.name + (transposed ? ", transposed, " : ", ") + format.type + " in dtype " + std::to_string(dtype));
            How how;
            if (adds) how = {{GALLEY_ACCUMULATE}, {draw(GALLEY_F32, problem.outputs[0]->shape, random).values}, {}};
            int taken = 0;
            for (const galley_kernel* kernel : level.kernels) {
              if (std::strcmp(kernel->op, op) != 0 || !(kernel->flags & GALLEY_KERNEL_FORMATS) || kernel->flags & GALLEY_KERNEL_GROUPS)
                continue;
              SCOPED_TRACE(kernel->name);
              CodedNode node(level, problem, &weight, how);
              int64_t priority = 0;
              if (query_of(kernel, level, {&node.node}, &priority) == GALLEY_UNSUPPORTED) continue;
              std::string text;
              ASSERT_EQ(run(kernel, level.isa, {&node.node}, &text), GALLEY_OK) << text;
              EXPECT_TRUE(same_as_plain(kernel, level, node));
              EXPECT_TRUE(weight.intact());
              ++taken;
            }
            EXPECT_GT(taken, 0);
          }
        }
  });
}

// Rows that no block divides, blocks that begin within a row and at odd numbers, several pieces, a few columns.
TEST(CodedProducts, HaveTheBytesOfTheNumbers) {
  compare_with_plain({{5, 64, 64}, {37, 67, 129}, {130, 192, 320}, {9, 1030, 70}, {65, 130, 600}, {1, 33, 17}, {300, 40, 70}},
                     {std::begin(four_bits), std::end(four_bits)});
}

// Rows are whole blocks, of 32 numbers or of 256.
TEST(CodedProducts, OfBlocksHaveTheBytesOfTheNumbers) {
  compare_with_plain({{5, 64, 96}, {37, 96, 160}, {130, 192, 320}, {9, 1056, 64}, {1, 32, 32}},
                     {{"Q4_0", 0, false}, {"Q4_1", 0, false}, {"Q5_0", 0, false}, {"Q5_1", 0, false}, {"Q8_0", 0, false}});
  compare_with_plain({{37, 256, 512}, {130, 512, 256}, {3, 768, 256}}, {{"Q4_K", 0, false}, {"Q5_K", 0, false}, {"Q6_K", 0, false}});
}

// Rows of a table that is looked up.
TEST(CodedTables, HaveTheBytesOfTheNumbers) {
  std::mt19937_64 random(seed());
  on_all_levels([&](const Level& level, bool again) {
    if (again) return;
    constexpr int64_t V = 40, C = 256, R = 37;
    int taken = 0;
    for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
      for (const FourBit& format : {FourBit{"Q8_0", 0, false}, FourBit{"Q4_K", 0, false}, FourBit{"nf4", 64, true}}) {
        SCOPED_TRACE(std::string(format.type) + " in dtype " + std::to_string(dtype));
        const CodedWeight weight(format, dtype, {V, C}, random);
        Problem problem;
        problem.op = models().op("embedding");
        problem.name = "embedding";
        Tensor ids = draw(GALLEY_F32, {R}, random);
        ids.dtype = GALLEY_I32;
        for (double& id : ids.values) id = static_cast<double>(random() % V);
        problem.inputs = {ids, weight.numbers};
        problem.infer();
        const Execution plain = alone(level, problem);
        ASSERT_EQ(plain.status, GALLEY_OK) << plain.text;
        for (const galley_kernel* kernel : level.kernels) {
          if (std::strcmp(kernel->op, "embedding") != 0 || !(kernel->flags & GALLEY_KERNEL_FORMATS)) continue;
          SCOPED_TRACE(kernel->name);
          CodedNode node(level, problem, &weight);
          int64_t priority = 0;
          if (query_of(kernel, level, {&node.node}, &priority) == GALLEY_UNSUPPORTED) continue;
          std::string text;
          ASSERT_EQ(run(kernel, level.isa, {&node.node}, &text), GALLEY_OK) << text;
          EXPECT_TRUE(node.placed.same(plain, problem.inputs.size()));
          EXPECT_TRUE(weight.intact());
          ++taken;
        }
      }
    EXPECT_GT(taken, 0);
  });
}

TEST(CodedProducts, InGroupsHaveTheBytesThatTheyHaveAlone) {
  std::mt19937_64 random(seed());
  on_all_levels([&](const Level& level, bool only_bf16) {
    for (const char* op : {"linear", "linear_dx"})
      for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16}) {
        if (only_bf16 && dtype != GALLEY_BF16) continue;
        SCOPED_TRACE(std::string(op) + " in dtype " + std::to_string(dtype));
        const auto several = std::find_if(level.kernels.begin(), level.kernels.end(), [&](const galley_kernel* k) {
          return k->op == std::string(op) && k->flags & GALLEY_KERNEL_GROUPS;
        });
        ASSERT_NE(several, level.kernels.end());
        sdk::Attrs none;
        std::deque<CodedWeight> weights;
        std::deque<Problem> problems;
        std::deque<CodedNode> together;
        std::vector<const galley_node_view*> nodes;
        // q, k, v, of which two have one form, and beside them a thin one in no format.
        for (const Layer& s : {Layer{66, 96, 192}, Layer{66, 96, 64}, Layer{66, 96, 64}, Layer{66, 96, 8}}) {
          const bool coded = s.N != 8;
          const CodedWeight& weight = weights.emplace_back(four_bits[weights.size()], dtype, std::vector{s.N, s.K}, random);
          problems.push_back(problem_of(op, s, weight, none, false, random));
          together.emplace_back(level, problems.back(), coded ? &weight : nullptr);
          nodes.push_back(&together.back().node);
        }
        std::string text;
        ASSERT_EQ(run(*several, level.isa, nodes, &text), GALLEY_OK) << text;
        for (const CodedNode& node : together) {
          SCOPED_TRACE(node.placed.problem.name);
          const galley_kernel* alone = chosen_for(level, op, node.node);
          ASSERT_TRUE(alone);
          EXPECT_TRUE(same_as_plain(alone, level, node)) << alone->name;
        }
      }
  });
}

TEST(CodedProducts, InChainsHaveTheBytesOfTheLinksOrOfTheChainOfNumbers) {
  std::mt19937_64 random(seed());
  int chains = 0;
  on_all_levels([&](const Level& level, bool only_bf16) {
    if (only_bf16) return;
    for (const galley_kernel* chain : level.kernels) {
      const std::string op = chain->op;
      if (!op.starts_with("linear>") || op == "linear>swiglu" || op == "linear>add") continue;  // of two inputs
      const uint32_t dtype = GALLEY_F16;
      sdk::Attrs none, tanh;
      tanh.s("approximate", "tanh");
      const Layer s = {37, 96, 72};
      const CodedWeight weight(four_bits[1], dtype, {s.N, s.K}, random);
      const Problem product = problem_of("linear", s, weight, none, true, random);
      Problem link;
      link.op = models().op(op.substr(7));
      link.name = op;
      if (op == "linear>gelu") link.attrs = tanh.data(), link.n_attrs = tanh.count();
      link.inputs = {*product.outputs[0]};
      link.inputs[0]->values.assign(static_cast<size_t>(s.rows * s.N), 0.0);
      link.infer();
      SCOPED_TRACE(op + " on " + level.isa);
      CodedNode first(level, product, &weight), second(level, link, nullptr);
      galley_operand made = *first.node.outputs[0], read = *second.node.inputs[0];
      made.name = read.name = "between";
      made.flags = read.flags = GALLEY_OPERAND_NO_MEMORY;
      made.data = read.data = nullptr;
      const galley_operand *makes[] = {&made}, *reads[] = {&read};
      first.node.outputs = makes;
      second.node.inputs = reads;
      std::string text;
      ASSERT_EQ(run(chain, level.isa, {&first.node, &second.node}, &text), GALLEY_OK) << text;
      ++chains;
      const Memory& got = second.placed.memory[1];
      if (level.isa.starts_with("x86")) {
        CodedNode apart(level, product, &weight);
        ASSERT_EQ(run(chosen_for(level, "linear", apart.node), level.isa, {&apart.node}, &text), GALLEY_OK) << text;
        link.inputs[0]->values = unpack(apart.placed.memory[3].data(), dtype, s.rows * s.N);
        const Execution then = alone(level, link);
        EXPECT_EQ(std::memcmp(got.data(), then.outputs[0].data(), static_cast<size_t>(got.bytes())), 0);
      } else {
        const Linked plain(product, link, 0, Linked::Between::NoMemory);
        ASSERT_EQ(plain.run(chain, level.isa).status, GALLEY_OK);
        EXPECT_EQ(std::memcmp(got.data(), plain.two.memory[1].data(), static_cast<size_t>(got.bytes())), 0);
      }
    }
  });
  EXPECT_GT(chains, 0);
}

TEST(CodedProducts, RefuseWhatTheyDoNotRead) {
  std::mt19937_64 random(seed());
  on_all_levels([&](const Level& level, bool only_bf16) {
    if (only_bf16) return;
    const CodedWeight weight(four_bits[0], GALLEY_F32, {24, 16}, random), of_bias(four_bits[0], GALLEY_F32, {24}, random);
    sdk::Attrs none;
    const Problem problem = problem_of("linear", {4, 16, 24}, weight, none, true, random);
    const CodedNode node(level, problem, nullptr);
    galley_operand other = weight.operand(*node.node.inputs[1], level), bias = of_bias.operand(*node.node.inputs[2], level);
    other.codec = nullptr;
    for (const galley_kernel* kernel : level.kernels) {
      if (std::strcmp(kernel->op, "linear") != 0 || !(kernel->flags & GALLEY_KERNEL_FORMATS)) continue;
      for (size_t place : {1, 2}) {
        galley_node_view view = node.node;
        std::vector<const galley_operand*> inputs(view.inputs, view.inputs + view.n_inputs);
        inputs[place] = place == 1 ? &other : &bias;
        view.inputs = inputs.data();
        int64_t priority = 0;
        EXPECT_EQ(query_of(kernel, level, {&view}, &priority), GALLEY_UNSUPPORTED) << kernel->name << " takes input " << place;
      }
    }
  });
}

}  // namespace
}  // namespace galley::test
