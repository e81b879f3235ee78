#include "host/exec/executor.hpp"

#include <gtest/gtest.h>

#include "tests/exec/small.hpp"

namespace galley {
namespace {

using small::Builder;
using small::Running;
using Floats = std::vector<float>;

#define ASSERT_OK(...)                                  \
  do {                                                  \
    const auto result_ = (__VA_ARGS__);                 \
    ASSERT_TRUE(result_.ok()) << result_.error().cause; \
  } while (false)

// Every program here gives the same bytes on each device, poisoned or not.
struct How {
  bool lazy;
  Poison poison;
};
class Executors : public testing::TestWithParam<How> {
 protected:
  Running run(Builder b) { return Running(std::move(b), GetParam().lazy, GetParam().poison); }
};
INSTANTIATE_TEST_SUITE_P(All, Executors,
                         testing::Values(How{false, Poison::No}, How{true, Poison::No}, How{false, Poison::Yes}, How{true, Poison::Yes}),
                         [](const auto& how) {
                           return std::string(how.param.lazy ? "Lazy" : "Cpu") + (how.param.poison == Poison::Yes ? "Poisoned" : "");
                         });

TEST_P(Executors, RunsASegmentInOrder) {
  Builder b;
  const TensorId x = b.tensor("x", {5}), y = b.tensor("y", {5}), z = b.tensor("z", {5});
  b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(x)}, 10);
  b.kernel(SegmentKind::Eval, small::add, {b.read(x), b.read(x)}, {b.write(y)});
  b.kernel(SegmentKind::Eval, small::multiply, {b.read(y), b.read(x)}, {b.write(z)});
  Running r = run(b);
  ASSERT_TRUE(r.executor) << r.error.cause;
  ASSERT_OK(r.executor->load());
  ASSERT_OK(r.executor->run(SegmentKind::Eval));
  EXPECT_EQ(r.values(z), (Floats{200, 242, 288, 338, 392}));
}

TEST_P(Executors, TheFirstMicroBatchWritesAndTheLaterOnesAdd) {
  Builder b;
  b.program.micro_batches = 3;
  const TensorId x = b.input("x", 3, 3), g = b.tensor("g", {3}), h = b.tensor("h", {3}, Life::Segment);
  b.kernel(SegmentKind::Micro, small::add, {b.read(x), b.read(x)}, {b.write(h)});
  b.kernel(SegmentKind::Micro, small::multiply, {b.read(h), b.read(x)}, {b.gather(g)});
  Running r = run(b);
  ASSERT_TRUE(r.executor) << r.error.cause;
  for (int window = 0; window < 2; ++window) {  // the second one begins anew
    for (int m = 0; m < 3; ++m) std::ranges::copy(Floats{1.0f, static_cast<float>(m), static_cast<float>(window)}, r.micro_batch(m));
    for (int m = 0; m < 3; ++m) {
      ASSERT_OK(r.feed(m));
      ASSERT_OK(r.executor->run_micro({m == 0}));
    }
    EXPECT_EQ(r.values(g), (Floats{6, 10, static_cast<float>(6 * window)}));
  }
}

// Weights rest in "spill", come in by the copying queue, are stepped and go back: what offload does.
TEST_P(Executors, CopiesBetweenClasses) {
  Builder b;
  const TensorId rest = b.tensor("rest", {64}, Life::Run, 1), slot = b.tensor("slot", {64}), d = b.tensor("d", {64}),
                 sum = b.tensor("sum", {64});
  b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(slot)}, 1);
  b.kernel(SegmentKind::Load, small::fill, {}, {b.write(d)}, 2);
  b.record(SegmentKind::Load, 0, 1);
  b.wait(SegmentKind::Load, 1, 1);
  b.copy(SegmentKind::Load, slot, rest, 1, 2);
  b.wait(SegmentKind::Load, 0, 2);
  b.kernel(SegmentKind::Load, small::fill, {}, {b.write(slot)}, -1);
  // Update: in, one step, out, and the slot is used for something else at once.
  b.record(SegmentKind::Update, 0, 3);
  b.wait(SegmentKind::Update, 1, 3);
  b.copy(SegmentKind::Update, rest, slot, 1, 4);
  b.wait(SegmentKind::Update, 0, 4);
  b.kernel(SegmentKind::Update, small::add, {b.read(slot), b.read(d)}, {b.write(sum)});
  b.record(SegmentKind::Update, 0, 5);
  b.wait(SegmentKind::Update, 1, 5);
  b.copy(SegmentKind::Update, sum, rest, 1, 6);
  b.wait(SegmentKind::Update, 0, 6);
  b.kernel(SegmentKind::Update, small::fill, {}, {b.write(sum)}, 0);
  Running r = run(b);
  ASSERT_TRUE(r.executor) << r.error.cause;
  ASSERT_OK(r.executor->load());
  for (int step = 0; step < 3; ++step) ASSERT_OK(r.executor->run_update());
  Floats expected(64);
  for (size_t i = 0; i < 64; ++i) expected[i] = static_cast<float>(i) + 7;
  EXPECT_EQ(r.values(rest), expected);
  EXPECT_EQ(r.executor->allocated(0), r.plan.classes[0].planned);
  EXPECT_EQ(r.executor->allocated(1), 256);
}

TEST_P(Executors, ScalarsOfAStep) {
  Builder b;
  b.program.rows = 4;
  b.program.micro_batches = 2;
  b.scalars({GALLEY_SCALAR_ATTEMPTED_STEP, GALLEY_SCALAR_APPLIED_STEP, GALLEY_SCALAR_APPLY, GALLEY_SCALAR_LOSS_SCALE,
             GALLEY_SCALAR_WINDOW_TOKENS, GALLEY_SCALAR_LOSS_SEED, GALLEY_SCALAR_GRADIENT_NORM, GALLEY_SCALAR_GRADIENT_FACTOR,
             GALLEY_SCALAR_FOUND_INF, GALLEY_SCALAR_RANDOM, GALLEY_SCALAR_LOSS});
  b.option("sgd.lr", {0.5, 0.25, 0.125});
  const TensorId x = b.tensor("x", {2}), lr = b.tensor("lr", {});
  const uint32_t rw = GALLEY_READ_WRITE;
  b.kernel(SegmentKind::Load, small::fill, {}, {b.write(x)}, 3);
  b.kernel(SegmentKind::Micro, small::lose, {b.scalar(GALLEY_SCALAR_LOSS, rw), b.read(x), b.scalar(GALLEY_SCALAR_LOSS_SEED)}, {});
  b.kernel(SegmentKind::Micro, small::next_rows, {b.scalar(GALLEY_SCALAR_RANDOM, rw)}, {}).launch()->nodes[0].attrs.set("rows", int64_t{4});
  b.kernel(SegmentKind::Update, small::multiply, {b.option("sgd.lr"), b.option("sgd.lr")}, {b.write(lr)});
  b.own_steps(4);
  Running r = run(b);
  ASSERT_TRUE(r.executor) << r.error.cause;
  ASSERT_OK(r.executor->load());
  for (int64_t step = 5; step < 7; ++step) {  // the loss begins at 0 each time
    ASSERT_OK(r.executor->begin_step({.attempted = step, .window_tokens = 8}));
    for (int64_t m = 0; m < 2; ++m) ASSERT_OK(r.executor->run_micro({m == 0}));
    ASSERT_OK(r.executor->run_update());
    ASSERT_OK(r.executor->await_update());
    EXPECT_EQ(r.executor->scalar(GALLEY_SCALAR_LOSS), 6.0);
    EXPECT_EQ(r.executor->scalar(GALLEY_SCALAR_ATTEMPTED_STEP), static_cast<double>(step));
  }
  EXPECT_EQ(r.executor->scalar(GALLEY_SCALAR_APPLIED_STEP), 2);
  EXPECT_EQ(r.executor->scalar(GALLEY_SCALAR_APPLY), 1);
  EXPECT_EQ(r.executor->scalar(GALLEY_SCALAR_LOSS_SEED), 0.5);
  EXPECT_EQ(r.executor->scalar(GALLEY_SCALAR_GRADIENT_FACTOR), 0.25);
  EXPECT_EQ(r.executor->scalar(GALLEY_SCALAR_FOUND_INF), 0);
  EXPECT_EQ(r.values(lr), (Floats{0.0625f}));
  int64_t random[4];
  ASSERT_OK(r.executor->machine().get(r.builder.program.scalars, r.builder.scalar(GALLEY_SCALAR_RANDOM).offset,
                                      std::as_writable_bytes(std::span(random))));
  EXPECT_EQ(random[0], 42);  // seed
  EXPECT_EQ(random[1], 5);   // window
  EXPECT_EQ(random[2], 4);   // first row of micro-batch 1
  ASSERT_OK(r.executor->begin_step({.attempted = 7, .window_tokens = 0}));
  ASSERT_OK(r.executor->run_update());
  ASSERT_OK(r.executor->read_back());
  EXPECT_EQ(r.executor->scalar(GALLEY_SCALAR_LOSS_SEED), 0);
}

// A whole step is enqueued before anything of it runs: rows and inputs must not be overwritten by later ones.
TEST_P(Executors, AStepMayBeEnqueuedAhead) {
  Builder b;
  b.program.micro_batches = 4;
  b.program.rows = 2;
  b.scalars({GALLEY_SCALAR_RANDOM});
  const TensorId rows = b.tensor("rows", {4}, Life::Run, 0, GALLEY_I64), x = b.input("x", 1, 4), sum = b.tensor("sum", {1});
  b.kernel(SegmentKind::Micro, small::multiply, {b.read(x), b.read(x)}, {b.gather(sum)});
  b.kernel(SegmentKind::Micro, small::next_rows, {b.scalar(GALLEY_SCALAR_RANDOM, GALLEY_READ_WRITE)}, {})
      .launch()
      ->nodes[0]
      .attrs.set("rows", int64_t{2});
  b.copy(SegmentKind::Micro, b.program.scalars, rows, 0, 0).inputs[0] = b.scalar(GALLEY_SCALAR_RANDOM);
  b.own_steps();
  Running r = run(b);
  ASSERT_TRUE(r.executor) << r.error.cause;
  ASSERT_OK(r.executor->load());
  ASSERT_OK(r.executor->begin_step({.attempted = 1}));
  for (int64_t m = 0; m < 4; ++m) *r.micro_batch(m) = static_cast<float>(m + 1);
  for (int64_t m = 0; m < 4; ++m) {
    ASSERT_OK(r.feed(m));
    ASSERT_OK(r.executor->run_micro({m == 0}));
  }
  ASSERT_OK(r.executor->synchronize());
  EXPECT_EQ(r.values(sum), (Floats{30}));
  EXPECT_EQ(r.values<int64_t>(rows)[2], 6);
}

// What the device has enqueued is done by then, also where it works by itself; the kernel has no queue, and is told of the processor.
TEST_P(Executors, TheHostRunsAKernelOfItsOwn) {
  static std::string told;
  static galley_kernel asks = small::add;
  asks.prepare = [](void* self, const galley_node_view* const* nodes, uint32_t n, const galley_kernel_setup* setup, void** state,
                    galley_error* error) {
    told = std::string(setup->target->device) + (setup->queue ? ", a queue" : "");
    return small::add.prepare(self, nodes, n, setup, state, error);
  };
  asks.enqueue = [](void* state, galley_queue* queue, galley_error* error) {
    if (queue) told += ", a queue";
    return small::add.enqueue(state, nullptr, error);
  };
  Builder b;
  const TensorId x = b.tensor("x", {64}), there = b.tensor("there", {64}, Life::Run, 1), made = b.tensor("made", {64}, Life::Run, 1),
                 back = b.tensor("back", {64}), y = b.tensor("y", {64});
  b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(x)}, 1);
  b.record(SegmentKind::Load, 0, 1);
  b.wait(SegmentKind::Load, 1, 1);
  b.copy(SegmentKind::Load, x, there, 1, 2);
  b.wait(SegmentKind::Load, 0, 2);
  b.kernel(SegmentKind::Load, asks, {b.read(there), b.read(there)}, {b.write(made)}).launch()->on_host = true;
  b.record(SegmentKind::Load, 0, 3);
  b.wait(SegmentKind::Load, 1, 3);
  b.copy(SegmentKind::Load, made, back, 1, 4);
  b.wait(SegmentKind::Load, 0, 4);
  b.kernel(SegmentKind::Load, small::add, {b.read(back), b.read(x)}, {b.write(y)});
  Running r = run(b);
  ASSERT_TRUE(r.executor) << r.error.cause;
  ASSERT_OK(r.executor->load());
  Floats expected(64);
  for (size_t i = 0; i < 64; ++i) expected[i] = 3 * static_cast<float>(i + 1);
  EXPECT_EQ(r.values(y), expected);
  EXPECT_EQ(told, "cpu");
}

TEST_P(Executors, AFailingKernelOfTheHostIsNamed) {
  Builder b;
  const TensorId x = b.tensor("x", {1});
  b.kernel(SegmentKind::Load, small::fails, {}, {b.write(x)}).launch()->on_host = true;
  Running r = run(b);
  ASSERT_TRUE(r.executor) << r.error.cause;
  const Status status = r.executor->load();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Plugin);
  EXPECT_EQ(status.error().cause,
            "load, instruction 0, 'fails.1', kernel 'fails.test': plugin 'fails.test' failed in enqueue: the cable is loose");
}

TEST_P(Executors, AFailingKernelIsNamed) {
  for (const galley_kernel* kernel : {&small::fails, &small::throws}) {
    Builder b;
    const TensorId x = b.tensor("x", {1});
    b.kernel(SegmentKind::Micro, small::fill, {}, {b.write(x)});
    b.kernel(SegmentKind::Micro, *kernel, {}, {b.write(x)});
    Running r = run(b);
    ASSERT_TRUE(r.executor) << r.error.cause;
    Status status = r.executor->run_micro({});
    if (status.ok()) status = r.executor->synchronize();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().exit, Exit::Plugin);
    EXPECT_NE(status.error().cause.find(kernel->name), std::string::npos) << status.error().cause;
    EXPECT_NE(status.error().cause.find(kernel == &small::fails ? "the cable is loose" : "past the table"), std::string::npos)
        << status.error().cause;
    EXPECT_TRUE(GetParam().lazy || status.error().cause.starts_with("micro, instruction 1, '")) << status.error().cause;
  }
}

TEST(Executor, AKernelThatCannotBePreparedIsNamed) {
  Builder b;
  const TensorId x = b.tensor("x", {1});
  b.kernel(SegmentKind::Eval, small::fill, {}, {b.write(x)});
  b.kernel(SegmentKind::Eval, small::no_prepare, {}, {b.write(x)});
  Running r(b);
  EXPECT_FALSE(r.executor);
  EXPECT_EQ(r.error.exit, Exit::Plugin);
  EXPECT_EQ(
      r.error.cause,
      "kernel 'no_prepare.test' cannot be prepared for 'no_prepare.2': plugin 'no_prepare.test' failed in prepare: no primitive for it");
}

TEST(Executor, MemoryThatIsNotThereIsASizeNotACrash) {
  Builder b;
  b.tensor("huge", {int64_t{1} << 48});
  Running r(b);
  EXPECT_FALSE(r.executor);
  EXPECT_EQ(r.error.exit, Exit::DoesNotFit);
  EXPECT_NE(r.error.cause.find("1125899906842624 bytes"), std::string::npos) << r.error.cause;
}

TEST(Executor, AClassTheDeviceDoesNotHaveIsNamed) {
  Builder b;
  b.tensor("x", {1}, Life::Run, 1);
  Plan plan = b.plan();
  Target target = small::target();
  target.memories[1].name = "pinned";
  const auto made = Executor::create(b.program, plan, target, small::device(false));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().exit, Exit::Recipe);
  EXPECT_NE(made.error().cause.find("'pinned'"), std::string::npos);
}

TEST(Executor, VariantsThatAreEqualShareTheirState) {
  static int prepared = 0;
  static galley_kernel counting = small::multiply;
  counting.prepare = [](void* self, const galley_node_view* const* nodes, uint32_t n, const galley_kernel_setup* setup, void** state,
                        galley_error* error) {
    ++prepared;
    return small::multiply.prepare(self, nodes, n, setup, state, error);
  };
  prepared = 0;
  Builder b;
  const TensorId x = b.tensor("x", {1}), y = b.tensor("y", {1});
  b.kernel(SegmentKind::Micro, counting, {b.read(x), b.read(x)}, {b.write(y)});
  b.kernel(SegmentKind::Micro, counting, {b.read(x), b.read(x)}, {b.gather(y)});
  b.kernel(SegmentKind::Update, counting, {b.read(x), b.read(x)}, {b.gather(y)});
  Running r(b);
  EXPECT_EQ(prepared, 4);
}

}  // namespace
}  // namespace galley
