// Between the first step and the last nothing is allocated: every malloc of the process is counted, whoever calls it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "host/exec/proof.hpp"
#include "tests/exec/small.hpp"

// Sanitizers bring their own malloc, which must not be replaced; operator new is counted by nobody then, and the test says so.
#if !defined(__SANITIZE_ADDRESS__) && defined(__GLIBC__)
#define GALLEY_COUNTS_MALLOC 1
static std::atomic<int64_t> mallocs;
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
#define GALLEY_VISIBLE __attribute__((visibility("default")))
GALLEY_VISIBLE void* malloc(size_t n) noexcept { return ++mallocs, __libc_malloc(n); }
GALLEY_VISIBLE void* calloc(size_t k, size_t n) noexcept { return ++mallocs, __libc_calloc(k, n); }
GALLEY_VISIBLE void* realloc(void* p, size_t n) noexcept { return ++mallocs, __libc_realloc(p, n); }
GALLEY_VISIBLE void* aligned_alloc(size_t a, size_t n) noexcept { return ++mallocs, __libc_memalign(a, n); }
}
#endif

namespace galley {
namespace {

#ifdef GALLEY_COUNTS_MALLOC

TEST(Allocations, AreCounted) {
  const int64_t before = mallocs;
  delete new std::string(100, 'x');
  EXPECT_EQ(mallocs - before, 2);
}

TEST(Allocations, AStepMakesNone) {
  small::Builder b;
  b.program.micro_batches = 3;
  b.scalars({GALLEY_SCALAR_APPLY, GALLEY_SCALAR_GRADIENT_FACTOR, GALLEY_SCALAR_RANDOM, GALLEY_SCALAR_LOSS, GALLEY_SCALAR_LOSS_SEED});
  b.option("sgd.lr", {1e-2});
  const TensorId x = b.input("x", 1024, 1), p = b.tensor("p", {1024}, Life::Run, 1), in = b.tensor("in", {1024}), g = b.tensor("g", {1024});
  const Operand s = b.number(GALLEY_F64);
  b.kernel(SegmentKind::Load, small::count_up, {}, {b.write(in)}, 1);
  b.copy(SegmentKind::Load, in, p, 0, 0);
  b.copy(SegmentKind::Micro, p, in, 1, 1);
  b.wait(SegmentKind::Micro, 0, 1);
  b.kernel(SegmentKind::Micro, small::multiply, {b.read(x), b.read(in)}, {b.gather(g)});
  b.kernel(SegmentKind::Micro, small::lose, {b.scalar(GALLEY_SCALAR_LOSS, GALLEY_READ_WRITE), b.read(x), b.scalar(GALLEY_SCALAR_LOSS_SEED)},
           {});
  b.kernel(SegmentKind::Update, small::sum_squares, {b.read(g)}, {s});
  b.kernel(SegmentKind::Update, small::descend,
           {b.update(in), b.read(g), b.option("sgd.lr"), b.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), b.scalar(GALLEY_SCALAR_APPLY)}, {});
  b.copy(SegmentKind::Update, in, p, 0, 0);
  Trained trained;
  trained.name = "p";
  trained.parameter = p;
  trained.sum_squares = s;
  trained.count = 1024;
  b.program.trained = {trained};
  b.own_steps();
  small::Running r(b);
  ASSERT_TRUE(r.executor) << r.error.cause;
  ASSERT_TRUE(r.executor->load().ok());
  Proof proof(*r.executor);
  std::fill_n(r.micro_batch(0), 1024, 0.125f);
  const int64_t before = mallocs;
  double loss = 0;
  for (int64_t step = 1; step <= 12; ++step) {
    const ProofStep begin = {.attempted = step, .applied = step, .window_tokens = 1024};
    bool ok = r.executor->begin_step({step, 1024}).ok() && proof.before_step(begin).ok();
    for (int64_t m = 0; m < 3; ++m) ok = ok && r.feed(0).ok() && r.executor->run_micro({m == 0}).ok();
    ok = ok && r.executor->run_update().ok() && r.executor->await_update().ok() && proof.after_step(begin).ok();
    loss = r.executor->scalar(GALLEY_SCALAR_LOSS);
    if (!ok) break;
  }
  EXPECT_EQ(mallocs - before, 0);  // also in step 2, in which the proof compares parameters
  EXPECT_EQ(loss, 3 * 0.125);
}

#else
TEST(Allocations, AStepMakesNone) { GTEST_SKIP() << "malloc cannot be counted in this build"; }
#endif

}  // namespace
}  // namespace galley
