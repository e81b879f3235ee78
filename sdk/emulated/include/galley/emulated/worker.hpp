// The threads of an emulated block (cuda.hpp): one fiber each, all on one thread of the processor, and the block's shared memory.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "galley/cpp/plugin.hpp"
#include "galley/emulated/races.hpp"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define GALLEY_EMULATED_ASAN 1
#else
#define GALLEY_EMULATED_ASAN 0
#endif

namespace galley::cuda::emulated {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

/// Where the code that runs now is. Set whenever a fiber goes on.
struct Place {
  Index thread, block;
  Extent threads, blocks;
};
inline thread_local Place place;

inline constexpr unsigned kWarp = 32;
inline constexpr size_t kStaticShared = 48 << 10, kSharedRoom = 256 << 10;
inline constexpr size_t kRedZone = GALLEY_EMULATED_ASAN ? 64 : 0;
inline constexpr size_t kStack = GALLEY_EMULATED_ASAN || GALLEY_EMULATED_TSAN ? 256 << 10 : 64 << 10;
/// A stack is used again after so many others: to ThreadSanitizer, all that was on it is one thread.
inline constexpr size_t kStacks = GALLEY_EMULATED_TSAN ? 2048 : 1;

#if defined(__x86_64__)
// Saves the registers that a call preserves, and its stack, in *from; goes on where `to` was saved.
extern "C" void galley_emulated_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
  .text
  .weak galley_emulated_switch
  .hidden galley_emulated_switch
  .type galley_emulated_switch, @function
galley_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size galley_emulated_switch, .-galley_emulated_switch
)");
#endif

/// A stack, and where its fiber stopped.
struct Stack {
  char* memory = nullptr;
  void* fake = nullptr;   ///< AddressSanitizer's
  void* racer = nullptr;  ///< ThreadSanitizer's fiber
#if defined(__x86_64__)
  void* stopped = nullptr;
#else
  ucontext_t stopped;
#endif
};

enum class State : uint8_t { Fresh, Ready, AtBarrier, InWarp, Done };

struct Fiber {
  Index index;
  unsigned number = 0;
  State state = State::Fresh;
  bool vote = false;  ///< at a barrier that counts
  std::unique_ptr<Stack> stack;
  /// cp.async: copies that were begun, and groups of them. They land when they are waited for, as late as a GPU could make them.
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  std::vector<Copy> begun;
  std::vector<std::vector<Copy>> groups;
};

/// What a warp operation does for all of its lanes, when the last one has arrived: `lanes` has the argument of each.
using WarpOperation = void (*)(void* const* lanes, unsigned mask);
struct Warp {
  unsigned arrived = 0;
  unsigned rounds = 0;  ///< a bit for each lane that is the lowest of a mask: whether its group has synchronized an odd number of times
  WarpOperation operation = nullptr;
  void* lanes[kWarp] = {};
};

/// Runs the blocks that one thread of the processor takes.
class Worker {
 public:
  static Worker& here() {
    static thread_local Worker worker;
    return worker;
  }
  ~Worker() {
    const races::Unseen unseen;
    for (auto& stack : stacks_) {
      ::munmap(stack->memory, kStack);
      races::destroy(stack->racer);
    }
    shared_.reset();
    meeting_.reset();
    std::vector<Fiber>().swap(fibers_);
  }
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// The launch's kernel, as a call with the arguments bound.
  using Body = void (*)(const void* call);

  void run_block(Index block, Extent blocks, Extent threads, size_t dynamic, Body body, const void* call, races::Launch* launch) {
    const races::Unseen unseen;
    scheduler_ = races::here();
    launch_ = launch;
    place.block = block;
    place.blocks = blocks;
    place.threads = threads;
    body_ = body;
    call_ = call;
    failure_.clear();
    count_ = threads.x * threads.y * threads.z;
    live_ = count_;
    if (fibers_.size() < count_) fibers_.resize(count_);
    warps_.assign((count_ + kWarp - 1) / kWarp, Warp());
    open_shared(dynamic);
    for (unsigned i = 0; i < count_; ++i) {
      Fiber& f = fibers_[i];
      f.index = {i % threads.x, i / threads.x % threads.y, i / (threads.x * threads.y)};
      f.number = i;
      f.state = State::Fresh;
    }
    ready_.clear();
    wake_all(State::Fresh);
    for (;;) {
      while (Fiber* next = take()) {
        resume(*next);
        if (!failure_.empty()) return abandon();
      }
      if (live_ == 0) break;
      votes_ = 0;
      unsigned waiting = 0;
      for (unsigned i = 0; i < count_; ++i)
        if (fibers_[i].state == State::AtBarrier) {
          ++waiting;
          votes_ += fibers_[i].vote;
        }
      // Threads that have ended count as arrived.
      if (waiting == live_) {
        voters_ = live_;
        ++barriers_;
        wake_all(State::AtBarrier);
        continue;
      }
      failure_ = waiting ? "deadlock: some threads wait at __syncthreads, others in a warp operation"
                         : "deadlock: lanes that a mask names never came to the warp operation";
      return abandon();
    }
    close_shared();
  }

  // ---- What fibers call ---------------------------------------------------------------------------------------------------------

  Fiber& current() { return *current_; }

  /// Waits for the other threads of the block; returns how many votes there were, of how many threads.
  std::pair<unsigned, unsigned> barrier(bool vote) {
    const races::Unseen unseen;
    current_->vote = vote;
    races::Place* const met = &meeting_->barriers[barriers_ % 2];  // not the next one's: who is there first would be seen here
    races::before(met);
    stop(State::AtBarrier);
    races::after(met);
    return {votes_, voters_};
  }

  /// Waits for the lanes that `mask` names, this one among them; then the last to come runs the operation. `orders`: what each has done
  /// before is done before what any of them does then.
  void warp(unsigned mask, void* argument, WarpOperation operation, bool orders = false) {
    const races::Unseen unseen;
    const unsigned lane = current_->number % kWarp, first = current_->number - lane;
    Warp& warp = warps_[first / kWarp];
    if (!(mask >> lane & 1u)) fail("a lane calls a warp operation whose mask does not name it");
    if (count_ - first < kWarp) mask &= (1u << (count_ - first)) - 1;  // the last warp may be short
    if ((warp.arrived & mask) && warp.operation != operation) fail("lanes of one mask are in different warp operations");
    const auto lowest = static_cast<unsigned>(__builtin_ctz(mask));
    races::Place* const met = &meeting_->warps[first / kWarp][lowest][warp.rounds >> lowest & 1u];
    if (orders) races::before(met);
    warp.operation = operation;
    warp.arrived |= 1u << lane;
    warp.lanes[lane] = argument;
    if ((warp.arrived & mask) != mask) {
      stop(State::InWarp);
    } else {
      operation(warp.lanes, mask);
      warp.arrived &= ~mask;
      warp.rounds ^= 1u << lowest;
      for (unsigned l = kWarp; l-- > 0;)
        if ((mask >> l & 1u) && l != lane) wake(fibers_[first + l]);
    }
    if (orders) races::after(met);
  }

  /// The shared variable that `tag` stands for: the same for all threads of the block.
  void* shared(const void* tag, size_t bytes, size_t alignment) {
    const races::Unseen unseen;
    for (const Shared& s : variables_)
      if (s.tag == tag) return s.data;
    char* const data = reserve(bytes, alignment);
    static_bytes_ += bytes;
    if (static_bytes_ > kStaticShared) fail("more than 48 KiB of shared variables");
    variables_.push_back({tag, data});
    return data;
  }
  char* dynamic_shared() { return dynamic_; }

  [[noreturn]] void fail(const std::string& what) {
    failure_ = what + "; block (" + std::to_string(place.block.x) + ", " + std::to_string(place.block.y) + ", " +
               std::to_string(place.block.z) + "), thread (" + std::to_string(place.thread.x) + ", " + std::to_string(place.thread.y) +
               ", " + std::to_string(place.thread.z) + ")";
    stop(State::Done);
    std::abort();  // nobody resumes it
  }
  const std::string& failure() const { return failure_; }

  enum class Order { Forward, Reverse, Random };
  void set_order(Order order, uint64_t seed) {
    order_ = order;
    random_.seed(seed);
  }

 private:
  struct Shared {
    const void* tag;
    char* data;
  };

  // ---- Scheduling ----------------------------------------------------------------------------------------------------------------

  void wake(Fiber& f) {
    if (f.state != State::Fresh) f.state = State::Ready;
    ready_.push_back(&f);
  }
  /// The last one that is woken runs first.
  void wake_all(State state) {
    for (unsigned k = 0; k < count_; ++k) {
      Fiber& f = fibers_[order_ == Order::Reverse ? k : count_ - 1 - k];
      if (f.state == state) wake(f);
    }
  }
  Fiber* take() {
    if (ready_.empty()) return nullptr;
    if (order_ == Order::Random) std::swap(ready_[random_() % ready_.size()], ready_.back());
    Fiber* f = ready_.back();
    ready_.pop_back();
    return f;
  }

  GALLEY_EMULATED_UNTRACED void resume(Fiber& f) {
    current_ = &f;
    place.thread = f.index;
    const bool fresh = f.state == State::Fresh;
    if (fresh) {
      f.stack = take_stack();
      f.begun.clear();
      f.groups.clear();
      enter(*f.stack);
    }
    f.state = State::Ready;
    switch_to(*f.stack);
    if (f.state == State::Done) {
      --live_;
      give_back(std::move(f.stack));
    }
  }

  /// Back to the scheduler, until it resumes this fiber.
  GALLEY_EMULATED_UNTRACED void stop(State state) {
    Fiber& me = *current_;
    me.state = state;
    switch_back(*me.stack, state == State::Done);
  }

  GALLEY_EMULATED_UNTRACED static void begin() noexcept {
    Worker& worker = here();
#if GALLEY_EMULATED_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &worker.main_bottom_, &worker.main_bytes_);
#endif
    races::after(&worker.launch_->begin);
    worker.body_(worker.call_);
    races::before(&worker.launch_->end);
    worker.stop(State::Done);
    std::abort();
  }

  void enter(Stack& s) {
#if GALLEY_EMULATED_ASAN
    __asan_unpoison_memory_region(s.memory, kStack);  // what a fiber before left poisoned
    s.fake = nullptr;
#endif
#if defined(__x86_64__)
    auto* const top = reinterpret_cast<void**>(s.memory + kStack - 64);
    top[0] = reinterpret_cast<void*>(begin);  // `ret` goes there, with the stack as after a call
    std::memset(top - 6, 0, 6 * sizeof(void*));
    s.stopped = top - 6;
#else
    ::getcontext(&s.stopped);
    s.stopped.uc_stack.ss_sp = s.memory;
    s.stopped.uc_stack.ss_size = kStack;
    s.stopped.uc_link = nullptr;
    ::makecontext(&s.stopped, reinterpret_cast<void (*)()>(begin), 0);
#endif
  }
  GALLEY_EMULATED_UNTRACED void switch_to(Stack& s) {
    races::go_to(s.racer);
#if GALLEY_EMULATED_ASAN
    __sanitizer_start_switch_fiber(&main_.fake, s.memory, kStack);
#endif
#if defined(__x86_64__)
    galley_emulated_switch(&main_.stopped, s.stopped);
#else
    ::swapcontext(&main_.stopped, &s.stopped);
#endif
#if GALLEY_EMULATED_ASAN
    __sanitizer_finish_switch_fiber(main_.fake, nullptr, nullptr);
#endif
  }
  GALLEY_EMULATED_UNTRACED void switch_back(Stack& s, [[maybe_unused]] bool forever) {
    races::go_to(scheduler_);
#if GALLEY_EMULATED_ASAN
    __sanitizer_start_switch_fiber(forever ? nullptr : &s.fake, main_bottom_, main_bytes_);
#endif
#if defined(__x86_64__)
    galley_emulated_switch(&s.stopped, main_.stopped);
#else
    ::swapcontext(&s.stopped, &main_.stopped);
#endif
#if GALLEY_EMULATED_ASAN
    __sanitizer_finish_switch_fiber(s.fake, &main_bottom_, &main_bytes_);
#endif
  }

  std::unique_ptr<Stack> take_stack() {
    if (stacks_.size() >= kStacks) {
      auto stack = std::move(stacks_.front());
      stacks_.pop_front();
      return stack;
    }
    auto stack = std::make_unique<Stack>();
    void* memory = ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    stack->memory = static_cast<char*>(memory);
    stack->racer = races::make();
    return stack;
  }
  /// The one that was used last is warm.
  void give_back(std::unique_ptr<Stack> stack) {
    if (GALLEY_EMULATED_TSAN) stacks_.push_back(std::move(stack));
    else stacks_.push_front(std::move(stack));
  }
  /// After a failure: what the other fibers have on their stacks is lost.
  void abandon() {
    for (unsigned i = 0; i < count_; ++i)
      if (fibers_[i].stack) give_back(std::move(fibers_[i].stack));
    close_shared();
  }

  // ---- Shared memory -------------------------------------------------------------------------------------------------------------

  void open_shared(size_t dynamic) {
    variables_.clear();
    used_ = static_bytes_ = 0;
    // Memory that is new to ThreadSanitizer in each block, so that blocks share nothing there.
    if (GALLEY_EMULATED_TSAN || !shared_) shared_.reset(new char[kSharedRoom + 1024]);
    if (GALLEY_EMULATED_TSAN || !meeting_) meeting_ = std::make_unique<Meeting>();
    barriers_ = 0;
#if GALLEY_EMULATED_ASAN
    __asan_poison_memory_region(shared_.get(), kSharedRoom + 1024);
#endif
    dynamic_ = reserve(dynamic, 128);
  }
  void close_shared() {
#if GALLEY_EMULATED_ASAN
    __asan_unpoison_memory_region(shared_.get(), kSharedRoom + 1024);
#endif
  }
  char* reserve(size_t bytes, size_t alignment) {
    const auto base = reinterpret_cast<uintptr_t>(shared_.get());
    const size_t at = (base + used_ + alignment - 1) / alignment * alignment - base;
    used_ = at + bytes + kRedZone;
    if (used_ > kSharedRoom + 1024) fail("more shared memory than any GPU has");
    char* const data = shared_.get() + at;
#if GALLEY_EMULATED_ASAN
    __asan_unpoison_memory_region(data, bytes);
#endif
    std::memset(data, 0xFF, bytes);
    return data;
  }

  /// Where threads of a block, and lanes of a warp with the same lowest lane, meet: by turns in two places.
  struct Meeting {
    races::Place barriers[2], warps[kWarp][kWarp][2];
  };

  Stack main_;
  void* scheduler_ = nullptr;
  races::Launch* launch_ = nullptr;
  std::unique_ptr<Meeting> meeting_;
  unsigned barriers_ = 0;
  const void* main_bottom_ = nullptr;
  size_t main_bytes_ = 0;
  Body body_ = nullptr;
  const void* call_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<Fiber*> ready_;
  std::deque<std::unique_ptr<Stack>> stacks_;
  Fiber* current_ = nullptr;
  unsigned count_ = 0, live_ = 0, votes_ = 0, voters_ = 0;
  std::unique_ptr<char[]> shared_;
  std::vector<Shared> variables_;
  size_t used_ = 0, static_bytes_ = 0;
  char* dynamic_ = nullptr;
  Order order_ = Order::Forward;
  std::mt19937_64 random_;
  std::string failure_;
};

}  // namespace galley::cuda::emulated
