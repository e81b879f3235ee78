// Steps whose states are stored in 8 bit: the bits of decoding them, stepping, and coding them again, for one parameter and for many in a
// launch, with copies and without.
#include <gtest/gtest.h>

#include <cstring>

#include "galley/cpp/dynamic8.hpp"
#include "galley/cpp/rule.hpp"
#include "tests/models/together.hpp"

namespace galley::test {
namespace {

namespace dynamic8 = sdk::dynamic8;

/// A parameter's step with its operands in memory; its states in 8 bit.
class StoredNode {
 public:
  StoredNode(const galley_op* op, const galley_op_case& example, int64_t size, int64_t off, uint32_t copy_dtype, std::mt19937_64& random)
      : problem_(Problem::draw(op, example, random)), off_(off), copy_dtype_(copy_dtype) {
    for (size_t i = 0; i < problem_.inputs.size(); ++i) {
      if (!problem_.inputs[i] || op->inputs[i]->role != GALLEY_ROLE_ROWS) continue;
      Tensor& t = *problem_.inputs[i];
      t.shape = {size};
      t.values.clear();
      for (int64_t e = 0; e < size; ++e)
        t.values.push_back(rounded(std::uniform_real_distribution(example.low[i], example.high[i])(random), t.dtype));
      if (i < sdk::kStepStates) continue;
      states_.push_back({i, example.low[i] < 0, Memory(size, 0, off_), Memory(dynamic8::blocks(size) * 4, 0), {}, {}});
      State& s = states_.back();
      std::vector<float> numbers(t.values.begin(), t.values.end());
      dynamic8::encode(numbers.data(), size, s.with_signs, codes(s), absmax(s));
      dynamic8::decode(codes(s), absmax(s), size, s.with_signs, numbers.data());
      t.values.assign(numbers.begin(), numbers.end());  // what the step finds
    }
    if (!states_.empty()) placed_ = std::make_unique<Placed>(problem_, How(), off_);
  }
  StoredNode(const StoredNode&) = delete;

  bool has_states() const { return !states_.empty(); }

  /// The views of the step, and of the copy behind it.
  std::vector<const galley_node_view*> nodes() {
    view_ = std::make_unique<View>(problem_, placed_->inputs, placed_->outputs, std::vector<uint32_t>(), false);
    step_ = *view_->node();
    for (uint32_t i = 0; i < step_.n_inputs; ++i) inputs_.push_back(step_.inputs[i]);
    attrs_[0].i("signed", 0);
    attrs_[1].i("signed", 1);
    for (State& s : states_) {
      const galley_operand& numbers = *step_.inputs[s.input];
      galley_operand& of_codes = operands_.emplace_back(numbers);
      of_codes.dtype = GALLEY_U8;
      of_codes.data = s.codes.data();
      galley_operand& of_absmax = operands_.emplace_back(numbers);
      of_absmax.data = s.absmax.data();
      of_absmax.shape = &s.blocks;
      s.blocks = dynamic8::blocks(galley_operand_count(&numbers));
      s.components = {&of_codes, &of_absmax};
      galley_operand& stored = operands_.emplace_back(numbers);
      stored.data = nullptr;
      stored.format = dynamic8::kName;
      stored.components = s.components.data();
      stored.n_components = 2;
      stored.attrs = attrs_[s.with_signs].data();
      stored.n_attrs = attrs_[s.with_signs].count();
      inputs_[s.input] = &stored;
    }
    step_.inputs = inputs_.data();
    if (!copy_dtype_) return {&step_};
    galley_operand& made = operands_.emplace_back(*inputs_[0]);
    made.name = "copy";
    made.dtype = copy_dtype_;
    made.access = GALLEY_WRITE;
    made.data = copied().data();
    copy_ = sdk::fresh<galley_node_view>();
    copy_.op = copy_.name = "copy";
    copy_outputs_ = {&made};
    copy_.inputs = inputs_.data();
    copy_.outputs = copy_outputs_.data();
    copy_.n_inputs = copy_.n_outputs = 1;
    copy_.block = -1;
    return {&step_, &copy_};
  }

  void expect_bytes_of(const Level& level) {
    const Execution made = alone(level, problem_);
    ASSERT_EQ(made.status, GALLEY_OK) << made.text;
    const int64_t n = problem_.inputs[0]->count();
    EXPECT_EQ(std::memcmp(placed_->inputs[0], made.inputs[0].data(), static_cast<size_t>(n) * 4), 0) << "parameter";
    for (State& s : states_) {
      std::vector<uint8_t> codes_then(static_cast<size_t>(n));
      std::vector<float> absmax_then(static_cast<size_t>(dynamic8::blocks(n)));
      dynamic8::encode(reinterpret_cast<const float*>(made.inputs[s.input].data()), n, s.with_signs, codes_then.data(), absmax_then.data());
      if (*problem_.inputs[sdk::kStepApply]->values.data() == 0) {  // nothing is coded again
        std::vector<float> same(static_cast<size_t>(n));
        dynamic8::decode(codes(s), absmax(s), n, s.with_signs, same.data());
        EXPECT_EQ(std::vector<double>(same.begin(), same.end()), problem_.inputs[s.input]->values);
        continue;
      }
      EXPECT_EQ(std::memcmp(codes(s), codes_then.data(), codes_then.size()), 0) << "codes of input " << s.input;
      EXPECT_EQ(std::memcmp(absmax(s), absmax_then.data(), absmax_then.size() * 4), 0) << "magnitudes of input " << s.input;
      EXPECT_TRUE(s.codes.intact() && s.absmax.intact());
    }
    if (!copy_dtype_) return;
    std::vector<double> wanted = unpack(placed_->inputs[0], GALLEY_F32, n);
    for (double& x : wanted) x = rounded(x, copy_dtype_);
    EXPECT_EQ(unpack(copied().data(), copy_dtype_, n), wanted);
    EXPECT_TRUE(copied().intact());
  }
  const std::string& name() const { return problem_.name; }

 private:
  struct State {
    size_t input;
    bool with_signs;
    Memory codes, absmax;
    int64_t blocks;
    std::vector<const galley_operand*> components;
  };
  static uint8_t* codes(const State& s) { return reinterpret_cast<uint8_t*>(s.codes.data()); }
  static float* absmax(const State& s) { return reinterpret_cast<float*>(s.absmax.data()); }
  Memory& copied() {
    if (!copied_) copied_ = std::make_unique<Memory>(problem_.inputs[0]->count() * 2, 0xFF, off_);
    return *copied_;
  }

  Problem problem_;
  int64_t off_;
  uint32_t copy_dtype_;
  std::vector<State> states_;
  std::unique_ptr<Placed> placed_;
  std::unique_ptr<View> view_;
  std::unique_ptr<Memory> copied_;
  galley_node_view step_ = {}, copy_ = {};
  std::vector<const galley_operand*> inputs_, copy_outputs_;
  std::deque<galley_operand> operands_;
  sdk::Attrs attrs_[2];
};

const galley_kernel* kernel_called(const Level& level, const std::string& name) {
  for (const galley_kernel* k : level.kernels)
    if (std::string(k->name).starts_with(name)) return k;
  return nullptr;
}

void expect_what_coding_around_a_step_gives(const std::string& op_name, uint32_t copy) {
  const galley_op* op = models().op(op_name);
  on_all_levels([&](const Level& level, bool again) {
    if (again) return;
    SCOPED_TRACE(op_name + (copy ? ", copied, on " : " on ") + level.isa);
    const galley_kernel* kernel = kernel_called(level, op_name + (copy ? "_stored_copy." : "_stored."));
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->flags & 0xFFFFFFFFull, GALLEY_KERNEL_FORMATS);
    std::mt19937_64 random(seed());
    std::vector<std::unique_ptr<StoredNode>> steps;
    for (uint32_t k = 0; k < op->n_cases; ++k)
      for (const int64_t size : {1, 255, 256, 4096, 50003}) {
        auto step = std::make_unique<StoredNode>(op, *op->cases[k], size, k % 2 * 4, copy, random);
        if (step->has_states()) steps.push_back(std::move(step));
      }
    std::vector<const galley_node_view*> nodes;
    for (const auto& step : steps)
      for (const galley_node_view* node : step->nodes()) nodes.push_back(node);
    std::string text;
    ASSERT_EQ(run(kernel, level.isa, nodes, &text), GALLEY_OK) << text;
    for (const auto& step : steps) {
      SCOPED_TRACE(step->name());
      step->expect_bytes_of(level);
    }
  });
}

TEST(StoredSteps, AreThoseOfTheNumbersBetweenDecodingAndCoding) {
  for (const char* op : {"adamw_step", "lion_step", "sgd_step"}) expect_what_coding_around_a_step_gives(op, 0);
}

TEST(StoredSteps, WriteCopiesToo) {
  for (const char* op : {"adamw_step", "lion_step"})
    for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) expect_what_coding_around_a_step_gives(op, dtype);
}

}  // namespace
}  // namespace galley::test
