// CUDA kernels on operands of more than 2³¹ numbers, as vocabularies and embeddings of large models have them: an index of 32 bits would
// wrap, and a grid could be one that no GPU takes. Nobody could compute such an operand whole here. So only few blocks of each launch run
// (GALLEY_CUDA_BLOCKS), the first and the last among them, over memory that no page is mapped to until it is touched. The last rows must
// come out as they do alone. Pages that nobody may touch lie on both sides.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "galley/cpp/node.hpp"
#include "tests/models/harness.hpp"
#include "tests/setting.hpp"

namespace galley::test {
namespace {

constexpr int64_t kNumbers = (int64_t{1} << 31) + (int64_t{1} << 20), kPage = 4096;

/// Bytes of zeros, as many as nobody has, between pages that cannot be touched.
class Pages {
 public:
  explicit Pages(int64_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage + 2 * kPage) {
    void* memory = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
    if (bytes_ > 2 * kPage) ::mprotect(memory_ + kPage, static_cast<size_t>(bytes_ - 2 * kPage), PROT_READ | PROT_WRITE);
    data_ = memory_ + (bytes_ - kPage - bytes) / 256 * 256;  // as near to the last page as an aligned address can be
    if (bytes_ == 2 * kPage) data_ = memory_ + kPage;
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { ::munmap(memory_, static_cast<size_t>(bytes_)); }
  std::byte* data() const { return data_; }

 private:
  int64_t bytes_;
  std::byte *memory_, *data_;
};

/// A node whose operands are where they are told to be.
struct Huge {
  explicit Huge(const Problem& of) : problem(of) {}
  const Problem& problem;
  std::vector<std::unique_ptr<Pages>> pages;
  std::vector<void*> inputs, outputs;

  std::byte* place(const Tensor& t) { return pages.emplace_back(std::make_unique<Pages>(t.count() * galley_dtype_bytes(t.dtype)))->data(); }

  void run(const galley_kernel* kernel) {
    const galley_target target = target_for("emulated");
    const View planned(problem, {}, {}, {}, false), placed(problem, inputs, outputs, {}, false);
    const galley_node_view *plan_node = planned.node(), *node = placed.node();
    galley_error error = GALLEY_ERROR_INIT;
    auto plan = sdk::fresh<galley_kernel_plan>();
    ASSERT_EQ(kernel->query(kernel->self, &plan_node, 1, &target, &plan, &error), GALLEY_OK) << error.text;
    const Pages workspace(plan.workspace_bytes), constants(plan.constants_bytes);
    auto setup = sdk::fresh<galley_kernel_setup>();
    setup.target = &target;
    setup.workspace = plan.workspace_bytes ? workspace.data() : nullptr;
    setup.workspace_bytes = plan.workspace_bytes;
    setup.constants = plan.constants_bytes ? constants.data() : nullptr;
    setup.constants_bytes = plan.constants_bytes;
    const Setting few("GALLEY_CUDA_BLOCKS", "64");
    void* state = nullptr;
    ASSERT_EQ(kernel->prepare(kernel->self, &node, 1, &setup, &state, &error), GALLEY_OK) << error.text;
    EXPECT_EQ(kernel->enqueue(state, nullptr, &error), GALLEY_OK) << error.text;
    kernel->release(state);
  }
};

class Large : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    set_threads(1);
    problem = Problem::draw(GetParam().op, *GetParam().example, random);
  }
  const galley_operand_rule* rule_of(bool output, size_t i) const { return test::rule_of(problem.op, output, i); }
  bool of_rows(bool output, size_t i) const { return rule_of(output, i)->role == GALLEY_ROLE_ROWS; }

  std::mt19937_64 random{seed()};
  Problem problem;
};

/// Cases whose rows depend on no other rows.
std::vector<Case> cases_of_rows() {
  std::vector<Case> out;
  if (!emulated_level()) return out;
  for (const Case& c : cases()) {
    if (!std::getenv("GALLEY_TEST_ALL") && c.name().find("f16") != std::string::npos) continue;  // the same indices
    if (!has_turn(c)) continue;
    bool has_rows = false, all = true;
    for (size_t i = 0; i < c.example->node->n_inputs; ++i)
      has_rows = has_rows || (c.example->node->inputs[i] && rule_of(c.op, false, i)->role == GALLEY_ROLE_ROWS);
    for (size_t i = 0; i < c.op->n_outputs; ++i) all = all && rule_of(c.op, true, i)->role == GALLEY_ROLE_ROWS;
    if (has_rows && all) out.push_back(c);
  }
  return out;
}

TEST_P(Large, TheLastRowsComeOutAsTheyDoAlone) {
  int64_t rows = 0, widest = 1;
  for (size_t i = 0; i < problem.inputs.size(); ++i)
    if (problem.inputs[i] && of_rows(false, i)) rows = rows_of(rule_of(false, i), *problem.inputs[i]);
  // As many as the last blocks have.
  const int64_t before = rows;
  rows = std::min<int64_t>(rows, 32);
  const auto cut = [&](std::optional<Tensor>& t, size_t i, bool output) {
    if (!t || !of_rows(output, i)) return;
    const int64_t width = t->count() / before;
    t->shape = shape_of_rows(rule_of(output, i), *t, rows);
    if (!output) t->values.resize(static_cast<size_t>(rows * width));
  };
  for (size_t i = 0; i < problem.inputs.size(); ++i) cut(problem.inputs[i], i, false);
  for (size_t i = 0; i < problem.outputs.size(); ++i) cut(problem.outputs[i], i, true);
  for (size_t i = 0; i < problem.inputs.size(); ++i)
    if (problem.inputs[i] && of_rows(false, i)) widest = std::max(widest, problem.inputs[i]->count() / rows);
  for (const auto& t : problem.outputs)
    if (t) widest = std::max(widest, t->count() / rows);
  const int64_t all = kNumbers / widest + rows;

  Problem alone = problem, huge = problem;
  alone.first_row = problem.first_row + all - rows;
  for (size_t i = 0; i < problem.inputs.size(); ++i)
    if (problem.inputs[i] && of_rows(false, i))
      huge.inputs[i] = Tensor{problem.inputs[i]->dtype, shape_of_rows(rule_of(false, i), *problem.inputs[i], all), {}};
  for (size_t i = 0; i < problem.outputs.size(); ++i)
    if (problem.outputs[i])
      huge.outputs[i] = Tensor{problem.outputs[i]->dtype, shape_of_rows(rule_of(true, i), *problem.outputs[i], all), {}};
  int taken = 0;
  const Level& level = *emulated_level();
  for (const galley_kernel* kernel : level.kernels) {
    const std::string name = kernel->name;
    // What stands in for a library computes the whole.
    if (GetParam().op->name != std::string(kernel->op) || name.ends_with(".cublaslt") || name.ends_with(".several")) continue;
    SCOPED_TRACE(std::string(kernel->name) + ", " + std::to_string(all) + " rows of " + std::to_string(widest) +
                 ", GALLEY_TEST_SEED=" + std::to_string(seed()));
    auto plan = sdk::fresh<galley_kernel_plan>();
    galley_error error = GALLEY_ERROR_INIT;
    if (query(kernel, level.isa, alone, {}, &plan, &error) == GALLEY_UNSUPPORTED ||
        query(kernel, level.isa, huge, {}, &plan, &error) == GALLEY_UNSUPPORTED)
      continue;
    ++taken;
    const Execution expected = execute(kernel, level.isa, alone);
    ASSERT_EQ(expected.status, GALLEY_OK) << expected.text;
    Huge node(huge);
    const auto last_rows = [&](std::byte* data, const Tensor& t) {
      return data + (t.count() / all) * (all - rows) * galley_dtype_bytes(t.dtype);
    };
    const auto bytes_of = [&](const Tensor& t) { return static_cast<size_t>(t.count() / all * rows * galley_dtype_bytes(t.dtype)); };
    for (size_t i = 0; i < huge.inputs.size(); ++i) {
      const auto& t = huge.inputs[i];
      std::byte* const data = t ? node.place(*t) : nullptr;
      node.inputs.push_back(data);
      if (!t) continue;
      const Memory small = pack(*problem.inputs[i], t->dtype);
      std::memcpy(of_rows(false, i) ? last_rows(data, *t) : data, small.data(), static_cast<size_t>(small.bytes()));
    }
    for (const auto& t : huge.outputs) {
      std::byte* const data = t ? node.place(*t) : nullptr;
      node.outputs.push_back(data);
      if (t) std::memset(last_rows(data, *t), 0xFF, bytes_of(*t));
    }
    node.run(kernel);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < huge.outputs.size(); ++i)
      if (const auto& t = huge.outputs[i]) {
        EXPECT_EQ(std::memcmp(last_rows(static_cast<std::byte*>(node.outputs[i]), *t), expected.outputs[i].data(), bytes_of(*t)), 0)
            << "output " << i;
      }
    for (size_t i = 0; i < huge.inputs.size(); ++i)
      if (const auto& t = huge.inputs[i]; t && of_rows(false, i)) {
        EXPECT_EQ(std::memcmp(last_rows(static_cast<std::byte*>(node.inputs[i]), *t), expected.inputs[i].data(), bytes_of(*t)), 0)
            << "input " << i;
      }
  }
  EXPECT_GT(taken, 0) << "no kernel takes it";
}

INSTANTIATE_TEST_SUITE_P(Ops, Large, testing::ValuesIn(cases_of_rows()), [](const auto& c) { return c.param.name(); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Large);

}  // namespace
}  // namespace galley::test
