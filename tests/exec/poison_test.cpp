// Poison mode: kernels that do what they must not are found, each by the rule that it breaks; ones that behave are not.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/exec/small.hpp"

namespace galley {
namespace {

using small::Builder;
using small::Running;

// y = kernel(x), with something that holds 7s right after each of them.
struct Case {
  explicit Case(const galley_kernel& kernel) {
    x = b.tensor("x", {16});
    behind_x = b.tensor("behind_x", {16});
    y = b.tensor("y", {16});
    behind_y = b.tensor("behind_y", {16});
    for (const TensorId t : {x, behind_x, y, behind_y}) b.kernel(SegmentKind::Load, small::fill, {}, {b.write(t)}, 7);
    b.kernel(SegmentKind::Eval, kernel, {b.read(x)}, {b.write(y)});
  }
  Status run(Poison poison, bool lazy = false) {
    Running r(b, lazy, poison);
    EXPECT_TRUE(r.executor) << r.error.cause;
    Status status = r.executor->load();
    if (status.ok()) status = r.executor->run(SegmentKind::Eval);
    if (status.ok()) status = r.executor->synchronize();
    return status;
  }
  Builder b;
  TensorId x, behind_x, y, behind_y;
};

std::string caught(const galley_kernel& kernel, bool lazy = false) {
  EXPECT_TRUE(Case(kernel).run(Poison::No, lazy).ok()) << "nothing is to be seen without poison";
  const Status status = Case(kernel).run(Poison::Yes, lazy);
  if (status.ok()) return "not caught";
  EXPECT_EQ(status.error().exit, Exit::Plugin);
  EXPECT_TRUE(status.error().cause.starts_with("eval, instruction 0, '" + std::string(kernel.op) + ".1', kernel '" + kernel.name + "': "))
      << status.error().cause;
  return status.error().cause.substr(status.error().cause.find("': ") + 3);
}

TEST(Poison, AReadBeyondAnOperand) {
  for (const bool lazy : {false, true}) {
    const std::string text = caught(small::read_beyond, lazy);
    EXPECT_NE(text.find("element 15 of 'y' depends on the poison"), std::string::npos) << text;
  }
}

TEST(Poison, AWriteBeyondAnOperand) {
  const std::string text = caught(small::write_beyond);
  EXPECT_NE(text.find("it wrote outside its operands, at byte 192 of memory class 0, 0 after the end of 'y'"), std::string::npos) << text;
}

TEST(Poison, AWriteToAnInput) {
  const std::string text = caught(small::write_input);
  EXPECT_NE(text.find("it wrote to 'x', which it may only read"), std::string::npos) << text;
}

TEST(Poison, AnOutputThatIsNotWrittenWhole) {
  const std::string text = caught(small::leave_out);
  EXPECT_NE(text.find("element 15 of 'y' depends on the poison"), std::string::npos) << text;
}

// Arithmetic on junk of one kind gives that very junk back, so that nothing seems to have changed.
TEST(Poison, AStepOneElementTooFar) {
  static galley_kernel far = small::descend;
  struct Operands {
    float *p, *s;
    int64_t n;
  };
  static Operands operands;
  far.prepare = [](void*, const galley_node_view* const* nodes, uint32_t, const galley_kernel_setup*, void** state,
                   galley_error*) -> galley_status {
    operands = {static_cast<float*>(nodes[0]->outputs[0]->data), static_cast<float*>(nodes[0]->outputs[1]->data),
                galley_operand_count(nodes[0]->outputs[0])};
    *state = &operands;
    return GALLEY_OK;
  };
  far.enqueue = [](void* state, galley_queue*, galley_error*) -> galley_status {
    const Operands& o = *static_cast<Operands*>(state);
    for (int64_t i = 0; i < o.n; ++i) o.p[i] = o.s[i] = 1;
    o.p[o.n] = o.s[o.n] = o.s[o.n] + 0.5f * (o.p[o.n] - o.s[o.n]);
    return GALLEY_OK;
  };
  far.release = [](void*) {};
  Builder b;
  const TensorId p = b.tensor("p", {5}), s = b.tensor("s", {5});
  b.tensor("behind", {16});
  b.kernel(SegmentKind::Eval, far, {}, {b.write(p), b.write(s)});
  Running r(b, false, Poison::Yes);
  const Status status = r.executor->run(SegmentKind::Eval);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().cause.find("it wrote outside its operands"), std::string::npos) << status.error().cause;
}

// The value that a stray byte gets may be the junk of one kind, but not of both.
TEST(Poison, AStrayWriteOfTheJunkItself) {
  static galley_kernel set = small::multiply;
  set.prepare = [](void*, const galley_node_view* const* nodes, uint32_t, const galley_kernel_setup*, void** state,
                   galley_error*) -> galley_status {
    *state = nodes[0]->outputs[0]->data;
    return GALLEY_OK;
  };
  set.enqueue = [](void* state, galley_queue*, galley_error*) -> galley_status {
    std::memset(state, 0xff, 17 * sizeof(float));
    return GALLEY_OK;
  };
  set.release = [](void*) {};
  Builder b;
  const TensorId y = b.tensor("y", {16});
  b.tensor("behind", {16});
  b.kernel(SegmentKind::Eval, set, {}, {b.write(y)});
  Running r(b, false, Poison::Yes);
  EXPECT_FALSE(r.executor->run(SegmentKind::Eval).ok());
}

TEST(Poison, SomethingThatNobodyWrote) {
  Builder b;
  const TensorId x = b.tensor("x", {4}), y = b.tensor("y", {4});
  b.kernel(SegmentKind::Eval, small::add, {b.read(x), b.read(x)}, {b.write(y)});
  Running r(b, false, Poison::Yes);
  EXPECT_FALSE(r.executor->run(SegmentKind::Eval).ok());
}

TEST(Poison, SomethingWhoseLifeIsOver) {
  Builder b;
  const TensorId x = b.tensor("x", {4}, Life::Segment), y = b.tensor("y", {4});
  b.kernel(SegmentKind::Eval, small::fill, {}, {b.write(x)}, 1);
  b.kernel(SegmentKind::Eval, small::fill, {}, {b.write(y)}, 1);
  b.kernel(SegmentKind::Eval, small::add, {b.read(x), b.read(x)}, {b.write(y)});
  Running fine(b, false, Poison::Yes);
  EXPECT_TRUE(fine.executor->run(SegmentKind::Eval).ok());
  Plan plan = b.plan();
  plan.placements[static_cast<size_t>(x)].last = 1;  // a plan that gives the bytes away too early
  const Target target = small::target();
  auto early = Executor::create(b.program, plan, target, small::device(false), {.watching = watching(Poison::Yes)});
  EXPECT_FALSE((*early)->run(SegmentKind::Eval).ok());
}

void run_overwrites(const sdk::Node& n, void*) {
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) n.write<float>(0)[i] = n.read<float>(0)[i];
}
void run_overwrites_the_last(const sdk::Node& n, void*) {
  const int64_t last = sdk::count(n.out(0)) - 1;
  for (int64_t i = 0; i <= last; ++i) n.write<float>(0)[i] = n.read<float>(0)[i] + (i < last ? n.write<float>(0)[i] : 0);
}
void run_adds(const sdk::Node& n, void*) {
  for (int64_t i = 0; i < sdk::count(n.out(0)); ++i) n.write<float>(0)[i] += n.read<float>(0)[i];
}

// What overwrites makes the same of any junk, so that only other contents tell.
TEST(Poison, AnAddendThatIsOverwritten) {
  static const galley_kernel all = sdk::kernel<run_overwrites>("all.test", "adds"),
                             last = sdk::kernel<run_overwrites_the_last>("last.test", "adds"),
                             adds = sdk::kernel<run_adds>("adds.test", "adds");
  const auto said = [](const galley_kernel& kernel, float before) {
    Builder b;
    const TensorId x = b.tensor("x", {4}), y = b.tensor("y", {4});
    b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(x)}, -1);
    b.kernel(SegmentKind::Load, small::fill, {}, {b.write(y)}, before);
    b.kernel(SegmentKind::Eval, kernel, {b.read(x)}, {b.operand(y, GALLEY_ACCUMULATE, GALLEY_ACCUMULATE)});
    Running r(b, false, Poison::Yes);
    Status status = r.executor->load();
    for (int times = 0; times < 2 && status.ok(); ++times) status = r.executor->run(SegmentKind::Eval);
    if (!status.ok()) return status.error().cause;
    EXPECT_EQ(r.values(y), (std::vector<float>{before - 2, before, before + 2, before + 4}));
    return std::string();
  };
  for (const float before : {0.0f, 3.0f, -1e5f}) {
    EXPECT_EQ(said(adds, before), "");
    EXPECT_NE(said(all, before).find("element 0 of 'y' does not follow what was there before"), std::string::npos);
    EXPECT_NE(said(last, before).find("element 3 of 'y' does not follow what was there before"), std::string::npos);
  }
}

TEST(Poison, AWorkspaceMayHoldAnything) {
  static galley_kernel scribbling = small::multiply;
  static void* given = nullptr;
  scribbling.prepare = [](void* self, const galley_node_view* const* nodes, uint32_t n, const galley_kernel_setup* setup, void** state,
                          galley_error* error) {
    given = setup->workspace;
    return small::multiply.prepare(self, nodes, n, setup, state, error);
  };
  scribbling.enqueue = [](void* state, galley_queue* queue, galley_error* error) {
    for (int i = 0; i < 64; ++i) static_cast<char*>(given)[i] = static_cast<char>(i);
    return small::multiply.enqueue(state, queue, error);
  };
  Builder b;
  const TensorId x = b.tensor("x", {4}), y = b.tensor("y", {4}), work = b.tensor("work", {64}, Life::Segment, 0, GALLEY_U8);
  b.kernel(SegmentKind::Load, small::fill, {}, {b.write(x)}, 3);
  b.kernel(SegmentKind::Eval, scribbling, {b.read(x), b.read(x)}, {b.write(y)}).launch()->workspace = work;
  Running r(b, false, Poison::Yes);
  ASSERT_TRUE(r.executor->load().ok());
  ASSERT_TRUE(r.executor->run(SegmentKind::Eval).ok());
  EXPECT_EQ(r.values(y), std::vector<float>(4, 9));
}

}  // namespace
}  // namespace galley
