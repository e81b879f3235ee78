// Reference mode: faults of kernels, of plans and of programs are found, each by what it is; a run without one goes through.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/exec/small.hpp"

namespace galley {
namespace {

using sdk::Node;
using small::Builder;

void shape_of_first(const Node& n, sdk::Shapes& out) { out.like(0, n.in(0)); }
void nothing(const Node&, sdk::Shapes&) {}
void fill_reference(const Node& n) {
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) n.write<double>(0)[i] = n.f("value", 0);
}
void count_reference(const Node& n) {
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) n.write<double>(0)[i] = n.f("value", 0) + static_cast<double>(i);
}
void add_reference(const Node& n) {
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) n.write<double>(0)[i] = n.read<double>(0)[i] + n.read<double>(1)[i];
}
void subtract_reference(const Node& n) {
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) n.write<double>(0)[i] = n.read<double>(0)[i] - n.read<double>(1)[i];
}
void multiply_reference(const Node& n) {
  const bool one = sdk::count(n.in(1)) == 1;
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) n.write<double>(0)[i] = n.read<double>(0)[i] * n.read<double>(1)[one ? 0 : i];
}
void descend_reference(const Node& n) {
  if (*n.read<int32_t>(4) == 0) return;
  for (int64_t i = 0; i < sdk::count(n.in(0)); ++i)
    n.update<double>(0)[i] -= *n.read<double>(2) * *n.read<double>(3) * n.read<double>(1)[i];
}

// Kernels with one mistake each.
void run_sum(const Node& n, void*) {
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) {
    const float sum = n.read<float>(0)[i] - n.read<float>(1)[i];
    n.write<float>(0)[i] = n.accumulates(0) ? n.write<float>(0)[i] + sum : sum;
  }
}
void run_swapped(const Node& n, void*) {
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) n.write<float>(0)[i] = n.read<float>(1)[i] - n.read<float>(0)[i];
}
void run_misread(const Node& n, void*) {  // reads the first operand as BF16
  const auto* x = n.read<uint16_t>(0);
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) {
    const uint32_t bits = static_cast<uint32_t>(x[i]) << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    n.write<float>(0)[i] = value + n.read<float>(1)[i];
  }
}
void run_last_row(const Node& n, void*) {
  const int64_t columns = sdk::columns(n.out(0));
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i)
    n.write<float>(0)[i] = i < sdk::count(n.out(0)) - columns ? n.read<float>(0)[i] + n.read<float>(1)[i] : 0;
}
void run_overwriting(const Node& n, void*) {
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) n.write<float>(0)[i] = n.read<float>(0)[i] * n.read<float>(1)[i];
}
template <int Fault>
void run_descend(const Node& n, void*) {
  auto* p = n.update<float>(0);
  if (*n.read<int32_t>(4) == (Fault == 0 ? 1 : 0)) return;  // 0: the predicate the wrong way round
  const float factor = Fault == 1 ? *n.read<float>(3) * *n.read<float>(3) : *n.read<float>(3);
  const int64_t count = Fault == 2 ? sdk::count(n.in(0)) / 2 : sdk::count(n.in(0));
  for (int64_t i = 0; i < count; ++i) p[i] -= *n.read<float>(2) * factor * n.read<float>(1)[i];
}
const galley_kernel subtract = sdk::kernel<run_sum>("subtract.test", "subtract");
const galley_kernel swapped = sdk::kernel<run_swapped>("swapped.test", "subtract");
const galley_kernel misread = sdk::kernel<run_misread>("misread.test", "add");
const galley_kernel last_row = sdk::kernel<run_last_row>("last_row.test", "add");
const galley_kernel overwrites = sdk::kernel<run_overwriting>("overwrites.test", "multiply");
const galley_kernel inverted = sdk::kernel<run_descend<0>>("inverted.test", "descend");
const galley_kernel squared = sdk::kernel<run_descend<1>>("squared.test", "descend");
const galley_kernel in_part = sdk::kernel<run_descend<2>>("in_part.test", "descend");

void run_skip(const Node& n, void*) {
  *n.write<int32_t>(0) = 0;
  *n.write<int32_t>(1) = 1;
}
const galley_kernel skip = sdk::kernel<run_skip>("skip.test", "skip");

const galley_op* op(const char* name) {
  using sdk::Op;
  static const std::vector<const galley_op*> all = [] {
    static Op fill("fill", ""), count("count_up", ""), add("add", ""), subtraction("subtract", ""), multiply("multiply", ""),
        descend("descend", "");
    const auto two = [](Op& made) -> Op& {
      return made.input("a", GALLEY_ROLE_ROWS)
          .input("b", GALLEY_ROLE_WHOLE)
          .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES, 0)
          .infer<shape_of_first>();
    };
    return std::vector<const galley_op*>{
        fill.output("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ACCUMULATES).infer<nothing>().reference<fill_reference>().table(),
        count.output("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ACCUMULATES).infer<nothing>().reference<count_reference>().table(),
        two(add).reference<add_reference>().table(),
        two(subtraction).reference<subtract_reference>().table(),
        two(multiply).reference<multiply_reference>().table(),
        descend.input("p", GALLEY_ROLE_ROWS, GALLEY_OPERAND_INOUT)
            .input("g", GALLEY_ROLE_ROWS)
            .input("lr", GALLEY_ROLE_WHOLE)
            .input("factor", GALLEY_ROLE_WHOLE)
            .input("apply", GALLEY_ROLE_WHOLE)
            .infer<nothing>()
            .reference<descend_reference>()
            .table()};
  }();
  for (const galley_op* o : all)
    if (std::string_view(o->name) == name) return o;
  return nullptr;
}

/// Two micro-batches add to a gradient; the update follows it and makes a constant anew, and what is evaluated reads that. In between, a
/// node of forward is made again.
class ReferenceMode : public testing::Test {
 protected:
  ReferenceMode() {
    Program& p = b.program;
    p.micro_batches = 2;
    p.rows = p.length = 1;
    b.scalars({GALLEY_SCALAR_APPLY, GALLEY_SCALAR_GRADIENT_FACTOR, GALLEY_SCALAR_FOUND_INF});
    b.option("sgd.lr", {0.5});
    x = b.input("x", 6, 2);
    w = b.tensor("w", {2, 3}), c = b.tensor("w twice", {2, 3}), g = b.tensor("grad.w", {2, 3}, Life::Window);
    h = b.tensor("h", {2, 3}, Life::Segment), again = b.tensor("h again", {2, 3}, Life::Segment);
    y = b.tensor("y", {2, 3}), e = b.tensor("e", {2, 3}, Life::Segment), f = b.tensor("f", {2, 3}, Life::Segment);
    p.tensors[static_cast<size_t>(x)].shape = {2, 3};
    Trained& trained = p.trained.emplace_back();
    trained.name = "w", trained.parameter = w, trained.gradient = g;
    p.resume = {{"w", w}};
    add(SegmentKind::Load, small::count_up, {}, {b.write(w)}, 1);
    add(SegmentKind::Load, small::add, {b.read(w), b.read(w)}, {b.write(c)});
    forward = add(SegmentKind::Micro, small::multiply, {b.read(x), b.read(c)}, {b.write(h)});
    clone = add(SegmentKind::Micro, small::multiply, {b.read(x), b.read(c)}, {b.write(again)});
    at(SegmentKind::Micro, clone).recomputed = true;
    at(SegmentKind::Micro, clone).launch()->nodes[0].name = at(SegmentKind::Micro, forward).name;
    gradient = add(SegmentKind::Micro, small::multiply, {b.read(again), b.read(x)}, {b.gather(g)});
    add(SegmentKind::Micro, small::add, {b.read(h), b.read(x)}, {b.write(y)});
    step = add(SegmentKind::Update, small::descend,
               {b.update(w), b.read(g), b.option("sgd.lr"), b.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), b.scalar(GALLEY_SCALAR_APPLY)}, {});
    refresh = add(SegmentKind::Update, small::add, {b.read(w), b.read(w)}, {b.write(c)});
    first = add(SegmentKind::Eval, subtract, {b.read(c), b.read(w)}, {b.write(e)});
    second = add(SegmentKind::Eval, small::add, {b.read(c), b.read(e)}, {b.write(f)});
    third = add(SegmentKind::Eval, small::multiply, {b.read(e), b.read(f)}, {b.write(y)});
    b.own_steps();
    b.write_file("w.safetensors", "w", w);
  }
  size_t add(SegmentKind kind, const galley_kernel& kernel, std::vector<Operand> inputs, std::vector<Operand> outputs, double value = 0) {
    b.kernel(kind, kernel, std::move(inputs), std::move(outputs), value).launch()->nodes[0].op = op(kernel.op);
    return b.program.segment(kind).code.size() - 1;
  }
  Instruction& at(SegmentKind kind, size_t index) { return b.program.segment(kind).code[index]; }

  /// "" or what the mode says of two steps with an evaluation after each, and an export.
  std::string run(const std::function<void(Plan&)>& change = {}, bool lazy = false, Poison poison = Poison::No) {
    Plan plan = b.plan();
    if (change) change(plan);
    const Target machine = small::target();
    report = {};
    auto made = Executor::create(b.program, plan, machine, small::device(lazy), {.watching = watching(poison, {.report = &report})});
    if (!made.ok()) return made.error().cause;
    Status done = steps(**made);
    if (done.ok()) return "";
    EXPECT_EQ(done.error().exit, Exit::Plugin);
    return done.error().cause;
  }
  Status steps(Executor& executor) {
    TRY_STATUS(executor.load());
    for (int64_t s = 1; s <= 2; ++s) {
      auto* window = reinterpret_cast<float*>(executor.address(b.program.window));
      for (int i = 0; i < 12; ++i) window[i] = static_cast<float>(s * i) - 5;
      TRY_STATUS(executor.begin_step({.attempted = s, .window_tokens = 2}));
      for (int64_t m = 0; m < 2; ++m) {
        const int64_t offset = m * 24;
        TRY_STATUS(executor.copy_inputs({&offset, 1}));
        TRY_STATUS(executor.run_micro({m == 0}));
      }
      TRY_STATUS(executor.run_update());
      TRY_STATUS(executor.run(SegmentKind::Eval));
    }
    return executor.export_model(small::scratch());
  }
  /// That the mode says so, and where.
  void expect(const std::string& said, const std::string& where, const std::string& what) {
    EXPECT_TRUE(said.starts_with(where)) << said;
    EXPECT_NE(said.find(what), std::string::npos) << said;
  }

  Builder b;
  ReferenceReport report;
  TensorId x, w, c, g, h, again, y, e, f;
  size_t forward, clone, gradient, step, refresh, first, second, third;
};

TEST_F(ReferenceMode, FindsNothingWhereNothingIsWrong) {
  for (const bool lazy : {false, true})
    for (const Poison poison : {Poison::No, Poison::Yes}) {
      EXPECT_EQ(run({}, lazy, poison), "");
      EXPECT_EQ(report.compared.at({"multiply", GALLEY_F32}).outputs, 4 * 3 + 2);
      EXPECT_EQ(report.compared.at({"descend", GALLEY_F32}).outputs, 2);
      EXPECT_LE(report.compared.at({"descend", GALLEY_F32}).worst, 1);
      EXPECT_EQ(report.files, 1);
      EXPECT_TRUE(report.text().starts_with("reference: ")) << report.text();
      EXPECT_NE(report.text().find("; not covered: gradient rules"), std::string::npos) << report.text();
      EXPECT_NE(report.json().find("\"descend\""), std::string::npos);
    }
}

TEST_F(ReferenceMode, ACastThatIsLeftOut) {
  at(SegmentKind::Eval, second).launch()->kernel = &misread;
  expect(run(), "eval, instruction 1, 'add.2', kernel 'misread.test': plugin", "writes 'f', element ");
}

TEST_F(ReferenceMode, AStaleConstant) {
  b.program.segment(SegmentKind::Update)
      .code.erase(b.program.segment(SegmentKind::Update).code.begin() + static_cast<std::ptrdiff_t>(refresh));
  expect(run(), "eval, instruction 0", "reads 'w twice', which is stale: it was made before 'w' changed");
}

// A parameter that lies elsewhere is brought, stepped and put back; its constant is made of the numbers that were brought.
TEST_F(ReferenceMode, AConstantOfWhatIsPutBackLater) {
  const TensorId brought = b.tensor("brought w", {2, 3}, Life::Segment);
  std::vector<Instruction>& code = b.program.segment(SegmentKind::Update).code;
  const auto move_last = [&](size_t to) { std::rotate(code.begin() + static_cast<std::ptrdiff_t>(to), code.end() - 1, code.end()); };
  at(SegmentKind::Update, step).inputs[0] = b.update(brought);
  at(SegmentKind::Update, refresh).inputs = {b.read(brought), b.read(brought)};
  b.copy(SegmentKind::Update, brought, w, 0, 0);
  move_last(std::max(step, refresh) + 1);
  b.copy(SegmentKind::Update, w, brought, 0, 0);
  move_last(std::min(step, refresh));
  EXPECT_EQ(run(), "");
  std::swap(code[step + 1], code[refresh + 1]);
  expect(run(), "eval, instruction 0", "reads 'w twice', which is stale: it was made before 'w' changed");
}

TEST_F(ReferenceMode, AConstantThatIsMadeOfSomethingElse) {
  at(SegmentKind::Update, refresh).inputs[1] = b.read(y);
  expect(run(), "micro, instruction 0", "reads 'w twice', which is made again from something else");
}

TEST_F(ReferenceMode, TwoTensorsInOnePlace) {
  const std::string said = run([&](Plan& plan) { plan.placements[static_cast<size_t>(f)] = plan.placements[static_cast<size_t>(e)]; });
  expect(said, "eval, instruction 2",
         "finds other bytes in 'e', from element 0 on, than eval[0] 'subtract.1' left there: 'f' lies there too");
}

// `f` takes over the bytes of `e`, which somebody still reads.
TEST_F(ReferenceMode, AnOutputThatTakesOverAnInputTooEarly) {
  for (const size_t i : {first, second, third})
    for (auto* operands : {&at(SegmentKind::Eval, i).inputs, &at(SegmentKind::Eval, i).outputs})
      for (Operand& o : *operands) {
        o.value = o.tensor;
        if (o.tensor == f) o.tensor = e;
      }
  expect(run(), "eval, instruction 2", "reads 'e', but another value has taken its place: eval[1] 'add.2' has written it");
}

TEST_F(ReferenceMode, ADroppedRow) {
  at(SegmentKind::Eval, second).launch()->kernel = &last_row;
  expect(run(), "eval, instruction 1, 'add.2', kernel 'last_row.test'", "writes 'f', element ");
}

TEST_F(ReferenceMode, AGradientThatIsOverwritten) {
  at(SegmentKind::Micro, gradient).outputs[0] = b.write(g);
  expect(run(), "micro, instruction 2",
         "overwrites 'grad.w', to which it has to add: what micro[2] 'multiply.3' has written there is lost");
}

TEST_F(ReferenceMode, AKernelThatOverwritesWhatItShouldAddTo) {
  at(SegmentKind::Micro, gradient).launch()->kernel = &overwrites;
  expect(run(), "micro, instruction 2, 'multiply.3', kernel 'overwrites.test'", "adds to 'grad.w'");
}

TEST_F(ReferenceMode, AnApplyPredicateTheWrongWayRound) {
  at(SegmentKind::Update, step).launch()->kernel = &inverted;
  expect(run(), "update, instruction 0, 'descend.1', kernel 'inverted.test'", "updates 'w', element ");
}

// Both the kernel and its reference read the flag that is there: but the step was to be skipped.
TEST_F(ReferenceMode, AnApplyPredicateThatIsSomethingElse) {
  at(SegmentKind::Update, step).inputs[4] = b.scalar(GALLEY_SCALAR_FOUND_INF);
  // Apply is 0 from here on, and the other flag is 1.
  Instruction zero =
      launch_of({"skip"}, {}, {b.scalar(GALLEY_SCALAR_APPLY, GALLEY_WRITE), b.scalar(GALLEY_SCALAR_FOUND_INF, GALLEY_WRITE)});
  zero.launch()->kernel = &skip;
  for (Operand& o : zero.outputs) o.later = GALLEY_WRITE;
  auto& update = b.program.segment(SegmentKind::Update).code;
  update.insert(update.begin(), zero);
  expect(run(), "update, instruction 1", "changes 'w' in a step that is to be skipped");
}

TEST_F(ReferenceMode, AWrongKeyInTheClone) {
  at(SegmentKind::Micro, clone).inputs[0] = b.read(c);  // another draw, that is: another number
  expect(run(), "micro, instruction 1", "makes 'h again' again, but element");
}

TEST_F(ReferenceMode, ACloneOfNothing) {
  at(SegmentKind::Micro, clone).launch()->nodes[0].name = "somebody else";
  expect(run(), "micro, instruction 1", "'somebody else' is to be made again, but nothing in forward has that name");
}

TEST_F(ReferenceMode, AWrongFactor) {
  at(SegmentKind::Update, step).launch()->kernel = &squared;
  b.program.segment(SegmentKind::Window).code.back().launch()->nodes[0].attrs.set("scale", 4.0);
  expect(run(), "update, instruction 0, 'descend.1', kernel 'squared.test'", "updates 'w'");
}

TEST_F(ReferenceMode, OperandsTheWrongWayRound) {
  at(SegmentKind::Eval, first).launch()->kernel = &swapped;
  expect(run(), "eval, instruction 0, 'subtract.1', kernel 'swapped.test'", "writes 'e'");
}

TEST_F(ReferenceMode, AStateThatIsWrittenBackInPart) {
  at(SegmentKind::Update, step).launch()->kernel = &in_part;
  expect(run(), "update, instruction 0, 'descend.1', kernel 'in_part.test'", "updates 'w', element ");
}

TEST_F(ReferenceMode, SomethingThatNobodyHasWritten) {
  at(SegmentKind::Eval, first).inputs[0] = b.read(f);
  expect(run(), "eval, instruction 0", "reads 'f', which nothing has written in this segment");
}

}  // namespace
}  // namespace galley
