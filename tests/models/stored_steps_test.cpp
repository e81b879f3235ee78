// Steps whose operands are stored in formats: the bits of decoding them, stepping, and coding them again, for one parameter and for many in
// a launch, with copies and without.
#include <gtest/gtest.h>

#include <cstring>

#include "galley/cpp/rule.hpp"
#include "plugins/eight-bit/codec.hpp"
#include "plugins/split-states/codec.hpp"
#include "tests/models/together.hpp"

namespace galley::test {
namespace {

/// How the operands of a step lie: states in dynamic8; states in companded8 and the parameter in split.
enum class Formats { Dynamic8, Split };

struct Format {
  const char* name;
  uint32_t first, second;  // the components' dtypes
  int64_t numbers;         // that an element of the second component stands for
};
Format format_of(Formats formats, bool parameter, bool with_signs) {
  if (formats == Formats::Dynamic8) return {sdk::dynamic8::kName, GALLEY_U8, GALLEY_F32, 256};
  if (parameter) return {sdk::split::kName, GALLEY_BF16, GALLEY_I8, 1};
  return {sdk::companded8::kName, with_signs ? GALLEY_I8 : GALLEY_U8, GALLEY_BF16, 32};
}

/// A parameter's step with its operands in memory.
class StoredNode {
 public:
  StoredNode(Formats formats, const galley_op* op, const galley_op_case& example, int64_t size, int64_t off, uint32_t copy_dtype,
             std::mt19937_64& random)
      : problem_(Problem::draw(op, example, random)), off_(off), copy_dtype_(copy_dtype) {
    for (size_t i = 0; i < problem_.inputs.size(); ++i) {
      if (!problem_.inputs[i] || op->inputs[i]->role != GALLEY_ROLE_ROWS) continue;
      Tensor& t = *problem_.inputs[i];
      t.shape = {size};
      t.values.clear();
      for (int64_t e = 0; e < size; ++e)
        t.values.push_back(rounded(std::uniform_real_distribution(example.low[i], example.high[i])(random), t.dtype));
      const bool parameter = i == sdk::kStepParameter, with_signs = example.low[i] < 0;
      if (parameter ? formats == Formats::Dynamic8 : i < sdk::kStepStates) continue;
      const Format format = format_of(formats, parameter, with_signs);
      Coded& c = coded_.emplace_back(i, with_signs, format, size, off_);
      const std::vector<float> numbers(t.values.begin(), t.values.end());
      c.with_format([&](const auto& as) { encode(as, 0, size, numbers.data()); });
      t.values = c.numbers(size);  // what the step finds
    }
    if (!coded_.empty()) placed_ = std::make_unique<Placed>(problem_, How(), off_);
  }
  StoredNode(const StoredNode&) = delete;

  bool is_stored() const { return !coded_.empty(); }

  /// The views of the step, and of the copy after it.
  std::vector<const galley_node_view*> nodes(const Level& level) {
    view_ = std::make_unique<View>(problem_, placed_->inputs, placed_->outputs, std::vector<uint32_t>(), false);
    step_ = *view_->node();
    for (uint32_t i = 0; i < step_.n_inputs; ++i) inputs_.push_back(step_.inputs[i]);
    attrs_[0].i("signed", 0);
    attrs_[1].i("signed", 1);
    for (Coded& c : coded_) {
      const galley_operand& numbers = *step_.inputs[c.input];
      galley_operand& first = operands_.emplace_back(numbers);
      first.dtype = c.format.first;
      first.data = c.first.data();
      galley_operand& second = operands_.emplace_back(numbers);
      second.dtype = c.format.second;
      second.data = c.second.data();
      c.blocks = c.blocks_of(galley_operand_count(&numbers));
      second.shape = &c.blocks;
      c.components = {&first, &second};
      galley_operand& stored = operands_.emplace_back(numbers);
      stored.data = nullptr;
      stored.format = c.format.name;
      stored.codec = level.codec(c.format.name);
      stored.components = c.components.data();
      stored.n_components = 2;
      if (!galley_same_text(c.format.name, sdk::split::kName)) {
        stored.attrs = attrs_[c.with_signs].data();
        stored.n_attrs = attrs_[c.with_signs].count();
      }
      inputs_[c.input] = &stored;
    }
    step_.inputs = inputs_.data();
    if (!copy_dtype_) return {&step_};
    galley_operand& made = operands_.emplace_back(*view_->node()->inputs[0]);
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
    const bool applies = *problem_.inputs[sdk::kStepApply]->values.data() != 0;
    std::vector<double> parameter = unpack(placed_->inputs[0], GALLEY_F32, n);
    for (Coded& c : coded_) {
      Coded then(c.input, c.with_signs, c.format, n, off_);
      then.with_format([&](const auto& as) { encode(as, 0, n, reinterpret_cast<const float*>(made.inputs[c.input].data())); });
      if (!applies) {  // nothing is coded again
        EXPECT_EQ(c.numbers(n), problem_.inputs[c.input]->values);
      } else {
        EXPECT_EQ(std::memcmp(c.first.data(), then.first.data(), c.first_bytes(n)), 0) << "first component of input " << c.input;
        EXPECT_EQ(std::memcmp(c.second.data(), then.second.data(), c.second_bytes(n)), 0) << "second component of input " << c.input;
      }
      EXPECT_TRUE(c.first.intact() && c.second.intact());
      if (c.input == sdk::kStepParameter) parameter = problem_.inputs[0]->values;
    }
    if (coded_.front().input != sdk::kStepParameter)
      EXPECT_EQ(std::memcmp(placed_->inputs[0], made.inputs[0].data(), static_cast<size_t>(n) * 4), 0) << "parameter";
    else if (applies) parameter = unpack(made.inputs[0].data(), GALLEY_F32, n);  // a copy is made of the numbers, before they are coded
    if (!copy_dtype_) return;
    for (double& x : parameter) x = rounded(x, copy_dtype_);
    EXPECT_EQ(unpack(copied().data(), copy_dtype_, n), parameter);
    EXPECT_TRUE(copied().intact());
  }
  const std::string& name() const { return problem_.name; }

 private:
  struct Coded {
    Coded(size_t of_input, bool is_signed, const Format& how, int64_t n, int64_t off)
        : input(of_input),
          with_signs(is_signed),
          format(how),
          first(n * static_cast<int64_t>(galley_dtype_bytes(how.first)), 0, off),
          second((n + how.numbers - 1) / how.numbers * static_cast<int64_t>(galley_dtype_bytes(how.second)), 0),
          blocks(0) {}
    template <class Body>
    void with_format(const Body& body) const {
      const std::string name = format.name;
      void *const one = first.data(), *const two = second.data();
      if (name == sdk::split::kName) body(split_states::Split(static_cast<uint16_t*>(one), static_cast<int8_t*>(two)));
      else if (name == sdk::dynamic8::kName) body(eight_bit::Dynamic8(static_cast<uint8_t*>(one), static_cast<float*>(two), with_signs));
      else body(split_states::Companded8(one, static_cast<uint16_t*>(two), with_signs));
    }
    std::vector<double> numbers(int64_t n) const {
      std::vector<float> out(static_cast<size_t>(n));
      with_format([&](const auto& as) { decode(as, 0, n, out.data()); });
      return {out.begin(), out.end()};
    }
    int64_t blocks_of(int64_t n) const { return (n + format.numbers - 1) / format.numbers; }
    size_t first_bytes(int64_t n) const { return static_cast<size_t>(n) * static_cast<size_t>(galley_dtype_bytes(format.first)); }
    size_t second_bytes(int64_t n) const {
      return static_cast<size_t>(blocks_of(n)) * static_cast<size_t>(galley_dtype_bytes(format.second));
    }

    size_t input;
    bool with_signs;
    Format format;
    Memory first, second;
    int64_t blocks;
    std::vector<const galley_operand*> components;
  };
  Memory& copied() {
    if (!copied_) copied_ = std::make_unique<Memory>(problem_.inputs[0]->count() * 2, 0xFF, off_);
    return *copied_;
  }

  Problem problem_;
  int64_t off_;
  uint32_t copy_dtype_;
  std::deque<Coded> coded_;  // the parameter first
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

void expect_what_coding_around_a_step_gives(Formats formats, const std::string& op_name, uint32_t copy) {
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
        auto step = std::make_unique<StoredNode>(formats, op, *op->cases[k], size, k % 2 * 4, copy, random);
        if (step->is_stored()) steps.push_back(std::move(step));
      }
    std::vector<const galley_node_view*> nodes;
    for (const auto& step : steps)
      for (const galley_node_view* node : step->nodes(level)) nodes.push_back(node);
    std::string text;
    setenv("GALLEY_CUDA_ORDER", "reverse", 1);  // of the threads of an emulated GPU
    const galley_status status = run(kernel, level.isa, nodes, &text);
    unsetenv("GALLEY_CUDA_ORDER");
    ASSERT_EQ(status, GALLEY_OK) << text;
    for (const auto& step : steps) {
      SCOPED_TRACE(step->name());
      step->expect_bytes_of(level);
    }
  });
}

TEST(StoredSteps, AreThoseOfTheNumbersBetweenDecodingAndCoding) {
  for (const char* op : {"adamw_step", "lion_step", "sgd_step"}) expect_what_coding_around_a_step_gives(Formats::Dynamic8, op, 0);
  for (const char* op : {"adamw_step", "lion_step", "sgd_step", "muon_step", "ema_step"})
    expect_what_coding_around_a_step_gives(Formats::Split, op, 0);
}

TEST(StoredSteps, WriteCopiesToo) {
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
    for (const char* op : {"adamw_step", "lion_step", "sgd_step"}) expect_what_coding_around_a_step_gives(Formats::Dynamic8, op, dtype);
    for (const char* op : {"adamw_step", "lion_step", "sgd_step", "muon_step", "ema_step"})
      expect_what_coding_around_a_step_gives(Formats::Split, op, dtype);
  }
}

}  // namespace
}  // namespace galley::test
