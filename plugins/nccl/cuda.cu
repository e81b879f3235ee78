// Exchanges of tensors by NCCL between processes with an NVIDIA GPU each.
//
// Source: NVIDIA, "NCCL User Guide", version 2.28: Point-to-point communication, Group Calls, In-place Operations, CUDA Stream Semantics.
//
// NCCL's sums have no order that one could name: it depends on the algorithm that NCCL chooses by the size and by the machine. Here each
// rank gets its part of all ranks' tensors, adds them one rank after the other, and gives the sum to all: the bits are those of one process
// that adds the same tensors in this order. A rank sends what a ring sends, 2 (n - 1) / n of the tensor. Small tensors are gathered whole
// and added on each rank. Exchanges among some ranks of the run are messages: a collective of NCCL would need a communicator for each
// group.
//
// The workspace, where parts of other ranks are received: (ranks, slot) numbers in the tensor's dtype, of which the own slot stays empty;
// of what is gathered whole, (ranks, numbers). All is in the order of the queue that the kernel is given: NCCL puts its own there.
#include "galley/cpp/exchange.hpp"
#include "galley/cuda/kernel.hpp"
#include "ranks.hpp"

namespace galley::nccl {
namespace {

using namespace sdk;

// Bytes. They are the same for every GPU, since ranks cut their parts into the same pieces.
constexpr int64_t kSlot = 8 << 20, kSlots = 64 << 20;  // of workspace: for each rank, and for all at most
constexpr int64_t kAligned = 256;                      // where slots begin
constexpr int64_t kSmall = 1 << 20;                    // of all ranks' tensors together that are gathered
constexpr int kThreads = 256, kNumbers = 8;            // that a thread adds

int64_t ranks_of(const Node& n) { return n.i("ranks", 0); }
void several(const Node& n) {
  if (ranks_of(n) < 2) unsupported("there is one rank");
}
void summed(uint32_t dtype) {
  for (const uint32_t one : {GALLEY_F32, GALLEY_F64, GALLEY_I32, GALLEY_BF16, GALLEY_F16})
    if (dtype == one) return;
  unsupported("sums are of F32, F64, I32, BF16 or F16");
}

/// The ranks of the run that a node is about.
Group group_for(const Node& n, const galley_kernel_setup& setup) {
  const auto* const ranks = static_cast<const Ranks*>(setup.ranks);
  return {n, ranks ? ranks->rank() : 0, ranks ? ranks->ranks() : 1};
}
/// The run's ranks. There are several.
Ranks& ranks_for([[maybe_unused]] const Node& n, const galley_kernel_setup& setup) {
  auto& ranks = *static_cast<Ranks*>(setup.ranks);
#if !GALLEY_CUDA_EMULATED
  int gpu = 0;
  cuda::check(cudaGetDevice(&gpu), "cudaGetDevice");
  if (gpu != ranks.gpu())
    throw Failure(GALLEY_FAILED,
                  std::string(n.name()) + ": " + n.view()->op + " runs on GPU " + std::to_string(gpu) + ", and NCCL was begun on GPU " +
                      std::to_string(ranks.gpu()),
                  "let each process see its own GPU alone: CUDA_VISIBLE_DEVICES");
#endif
  return ranks;
}

// ---- Sums in the order of ranks ---------------------------------------------------------------------------------------------------------

// Integers wrap; numbers of 16 bit are added in F32, and rounded after each rank.
template <class T>
__device__ T added(T a, T b) {
  if constexpr (std::is_arithmetic_v<T>) {
    return a + b;
  } else {
    T out;
    cuda::narrow(cuda::widen(a) + cuda::widen(b), out);
    return out;
  }
}

/// y[i] = x of rank 0 + x of rank 1 + …, or y + x of rank 0 + …; x of rank r is others[r · stride + i], of this rank own[i]. y may be own.
/// Ranks count along the axis.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_ranks(const T* own, const T* others, int64_t stride, int rank, int ranks, T* y, int64_t count, bool adds) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kNumbers * kThreads) + threadIdx.x;
  const auto of_rank = [=](int r, int64_t i) { return r == rank ? own[i] : others[r * stride + i]; };
  T sum[kNumbers];
#pragma unroll
  for (int k = 0; k < kNumbers; ++k)
    if (const int64_t i = first + k * kThreads; i < count) sum[k] = adds ? added(y[i], of_rank(0, i)) : of_rank(0, i);
  for (int r = 1; r < ranks; ++r)
#pragma unroll
    for (int k = 0; k < kNumbers; ++k)
      if (const int64_t i = first + k * kThreads; i < count) sum[k] = added(sum[k], of_rank(r, i));
#pragma unroll
  for (int k = 0; k < kNumbers; ++k)
    if (const int64_t i = first + k * kThreads; i < count) y[i] = sum[k];
}

/// Calls `as(T())` with the type whose sums have the bits of the dtype's.
template <class As>
void by_dtype(uint32_t dtype, const As& as) {
  switch (dtype) {
    case GALLEY_F64: return as(double());
    case GALLEY_I32: return as(uint32_t());
    case GALLEY_BF16: return as(Bf16());
    case GALLEY_F16: return as(F16());
    default: return as(float());
  }
}

// ---- Parts --------------------------------------------------------------------------------------------------------------------------------

/// What the kernels have in common: a tensor in parts, of which the rank at place p of its group has the p-th.
class Exchange {
 public:
  Exchange(const Node& n, const galley_kernel_setup& setup, std::vector<Parts::Part> parts, int64_t element)
      : node_(n),
        group_(group_for(n, setup)),
        ranks_(ranks_for(n, setup)),
        parts_(std::move(parts)),
        largest_(largest_of(parts_)),
        element_(element),
        workspace_(static_cast<char*>(setup.workspace)) {
    even_ = largest_ > 0 && group_.is_whole_run();
    for (size_t r = 0; r < parts_.size(); ++r)
      even_ &= parts_[r].count == largest_ && parts_[r].first == static_cast<int64_t>(r) * largest_;
  }

 protected:
  /// Errors get the node's name.
  template <class Body>
  void named(const Body& body) {
    try {
      body();
    } catch (const Failure& failure) {
      throw Failure(failure.status, std::string(node_.name()) + ": " + node_.view()->op + ": " + failure.what(), failure.hint);
    }
  }
  /// For `scatter`.
  static int64_t scatter_bytes(const std::vector<Parts::Part>& parts, int64_t element) {
    const auto ranks = static_cast<int64_t>(parts.size());
    return ranks * slot_bytes(ranks, largest_of(parts) * element);
  }

  const Parts::Part& own() const { return parts_[static_cast<size_t>(group_.place())]; }

  /// y, this rank's part, = [y +] the part of x of each rank, one after the other. y may be that part of x itself.
  template <class T>
  void scatter(const T* x, T* y, bool adds, galley_queue* queue) {
    const int64_t slot = slot_bytes(group_.places(), largest_ * element_) / element_;
    T* const slots = reinterpret_cast<T*>(workspace_);
    for (int64_t done = 0; done < largest_; done += slot) {
      const int64_t mine = piece(own(), done, slot);
      swap(
          queue, [&](int64_t to) { return std::pair(x + part(to).first + done, piece(part(to), done, slot)); },
          [&](int64_t from) { return std::pair(slots + from * slot, mine); });
      add(x + own().first + done, slots, slot, y + done, mine, adds, queue);
    }
  }
  template <class T>
  void add(const T* own, const T* others, int64_t stride, T* y, int64_t count, bool adds, galley_queue* queue) {
    if (count)
      cuda::launch(add_ranks<T>, {cuda::blocks_of(count, kNumbers * kThreads), kThreads}, queue, own, others, stride,
                   static_cast<int>(group_.place()), static_cast<int>(group_.places()), y, count, adds);
  }

  /// y = [y +] x of all ranks of the group, of which each has few numbers.
  template <class T>
  void add_small(const T* x, T* y, int64_t numbers, bool adds, galley_queue* queue) {
    T* const all = reinterpret_cast<T*>(workspace_);
    if (group_.is_whole_run()) {
      gather_even(reinterpret_cast<const char*>(x), workspace_, numbers * element_, queue);
      x = all + group_.place() * numbers;
    } else {
      swap(
          queue, [&](int64_t) { return std::pair(x, numbers); }, [&](int64_t from) { return std::pair(all + from * numbers, numbers); });
    }
    add(x, all, numbers, y, numbers, adds, queue);
  }

  /// `whole` gets the parts of all ranks; this one's is `mine`, which may lie in its place there.
  void gather(const char* mine, char* whole, galley_queue* queue) {
    if (even_) return gather_even(mine, whole, own().count * element_, queue);
    char* const place = whole + own().first * element_;
    swap(
        queue, [&](int64_t) { return std::pair(mine, own().count * element_); },
        [&](int64_t from) { return std::pair(whole + part(from).first * element_, part(from).count * element_); },
        mine == place ? nullptr : place);
  }
  /// Of all ranks of the run.
  void gather_even(const char* mine, char* whole, int64_t bytes, galley_queue* queue) {
    ranks_.group("ncclAllGather", [&](const Library& nccl, Comm comm) {
      return nccl.all_gather(mine, whole, static_cast<size_t>(bytes), kUint8, comm, queue);
    });
  }

  Node node_;
  Group group_;
  Ranks& ranks_;
  std::vector<Parts::Part> parts_;
  int64_t largest_, element_;  // elements; bytes
  char* workspace_;
  bool even_;  // the r-th part is that of rank r of the run, and all are as large

 private:
  static int64_t slot_bytes(int64_t ranks, int64_t largest_bytes) {
    return std::min({kSlot, kSlots / ranks / kAligned * kAligned, cuda::blocks_of(largest_bytes, kAligned) * kAligned});
  }
  static int64_t piece(const Parts::Part& part, int64_t done, int64_t most) { return std::clamp<int64_t>(part.count - done, 0, most); }
  const Parts::Part& part(int64_t place) const { return parts_[static_cast<size_t>(place)]; }

  /// One message to and one from the rank at each other place, `send(place)` and `receive(place)`: an address and how many numbers there
  /// are; of none there is no message. `self`: where to copy what this rank sends; null: nowhere.
  template <class Send, class Receive>
  void swap(galley_queue* queue, const Send& send, const Receive& receive, void* self = nullptr) {
    ranks_.group("ncclSend and ncclRecv", [&](const Library& nccl, Comm comm) {
      const int64_t n = group_.places(), place = group_.place();
      int result = kSuccess;
      for (int64_t k = self ? 0 : 1; k < n && result == kSuccess; ++k) {
        const int64_t before = (place + n - k) % n, after = (place + k) % n;
        const auto from = static_cast<int>(group_.member(before)), to = static_cast<int>(group_.member(after));
        const auto [source, sent] = send(after);
        const auto bytes = static_cast<size_t>(sent) * sizeof *source;
        if (sent) result = nccl.send(source, bytes, kUint8, to, comm, queue);
        if (k == 0) {
          if (sent && result == kSuccess) result = nccl.receive(self, bytes, kUint8, from, comm, queue);
          continue;
        }
        const auto [target, got] = receive(before);
        if (got && result == kSuccess) result = nccl.receive(target, static_cast<size_t>(got) * sizeof *target, kUint8, from, comm, queue);
      }
      return result;
    });
  }
};

// ---- The ops ------------------------------------------------------------------------------------------------------------------------------

/// all_reduce, and all_reduce_here, which has no output.
class AllReduce : Exchange {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan& plan) {
    several(n);
    summed(n.in(0).dtype);
    const int64_t all = ranks_of(n) * galley_operand_bytes(&n.in(0));
    plan.workspace_bytes = all <= kSmall ? all : scatter_bytes(even_parts(ranks_of(n), count(n.in(0))), galley_dtype_bytes(n.in(0).dtype));
  }
  AllReduce(const Node& n, const galley_kernel_setup& setup)
      : Exchange(n, setup, even_parts(ranks_of(n), count(n.in(0))), galley_dtype_bytes(n.in(0).dtype)) {}
  void run(galley_queue* queue) {
    by_dtype(node_.in(0).dtype, [&](auto type) { run_as<decltype(type)>(queue); });
  }

 private:
  template <class T>
  void run_as(galley_queue* queue) {
    const bool here = !node_.has_out(0), adds = !here && node_.accumulates(0);
    const T* const x = node_.read<T>(0);
    T* const y = here ? node_.update<T>(0) : node_.write<T>(0);
    const int64_t numbers = count(node_.in(0)), bytes = numbers * element_;
    if (numbers == 0) return;
    named([&] {
      if (group_.places() * bytes <= kSmall) return add_small(x, y, numbers, adds, queue);
      T* const sum = y + own().first;
      scatter(x, sum, adds, queue);
      gather(reinterpret_cast<const char*>(sum), reinterpret_cast<char*>(y), queue);
    });
  }
};

class ReduceScatter : Exchange {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan& plan) {
    several(n);
    summed(n.in(0).dtype);
    if (n.in(0).dtype != n.out(0).dtype) unsupported("sums in another dtype");
    plan.workspace_bytes = scatter_bytes(parts_of(n), galley_dtype_bytes(n.in(0).dtype));
  }
  ReduceScatter(const Node& n, const galley_kernel_setup& setup) : Exchange(n, setup, parts_of(n), galley_dtype_bytes(n.in(0).dtype)) {}
  void run(galley_queue* queue) {
    by_dtype(node_.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      named([&] { scatter(node_.read<T>(0), node_.write<T>(0), node_.accumulates(0), queue); });
    });
  }
};

/// all_gather, and all_gather_here, which has no output.
class AllGather : Exchange {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan&) { several(n); }
  AllGather(const Node& n, const galley_kernel_setup& setup) : Exchange(n, setup, parts_of(n), galley_dtype_bytes(n.in(0).dtype)) {}
  void run(galley_queue* queue) {
    const bool here = !node_.has_out(0);
    char* const whole = here ? node_.update<char>(0) : node_.write<char>(0);
    named([&] { gather(here ? whole + own().first * element_ : node_.read<char>(0), whole, queue); });
  }
};

const bool added_kernels = add(cuda::kernel_of<AllReduce>("all_reduce_here.nccl", "all_reduce_here")) &&
                           add(cuda::kernel_of<AllReduce>("all_reduce.nccl", "all_reduce")) &&
                           add(cuda::kernel_of<ReduceScatter>("reduce_scatter.nccl", "reduce_scatter")) &&
                           add(cuda::kernel_of<AllGather>("all_gather.nccl", "all_gather")) &&
                           add(cuda::kernel_of<AllGather>("all_gather_here.nccl", "all_gather_here"));

}  // namespace
}  // namespace galley::nccl

GALLEY_PLUGIN("nccl", "1.0.0");
