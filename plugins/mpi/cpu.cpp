// Exchanges of tensors by MPI between processes on processors.
//
// Sums of libraries have no order, or one that depends on the size (MPI 3.1, 5.9.1, only advises one): here each rank gets its part of all
// ranks' tensors, adds them one rank after the other, and gives the sum to all. It sends what a ring sends, 2 (n - 1) / n of the tensor.
// Small tensors are gathered whole and added on each rank, which is one call where all ranks of the run do so. Exchanges among some of them
// are messages: a collective of MPI would need a communicator for each group.
#include "galley/cpp/exchange.hpp"
#include "galley/cpp/half.hpp"
#include "galley/cpp/plugin.hpp"
#include "ranks.hpp"

namespace galley::mpi {
namespace {

using namespace sdk;

constexpr int64_t kSlot = 1 << 20, kSlots = 32 << 20;  // bytes of workspace: for each rank, and for all at most
constexpr int64_t kSmall = 256 << 10;                  // bytes of all ranks' tensors together that are gathered
constexpr int64_t kBlock = 16384, kRun = 1024;         // elements: that a thread adds, and that it adds at a time

int64_t ranks_of(const Node& n) { return n.i("ranks", 0); }
void several(const Node& n) {
  if (ranks_of(n) < 2) unsupported("there is one rank");
}

/// The ranks of the run that a node is about.
Group group_for(const Node& n, const galley_kernel_setup& setup) {
  const auto* const ranks = static_cast<const Ranks*>(setup.ranks);
  return {n, ranks ? ranks->rank() : 0, ranks ? ranks->ranks() : 1};
}

template <class T>
T plus(T a, T b) {
  return a + b;
}
/// Numbers of 16 bits are rounded after each rank's, as where one process adds them.
template <class T>
T plus_rounded(T a, T b) {
  T sum;
  from_float(to_float(a) + to_float(b), sum);
  return sum;
}
inline Bf16 plus(Bf16 a, Bf16 b) { return plus_rounded(a, b); }
inline F16 plus(F16 a, F16 b) { return plus_rounded(a, b); }

/// y = x of rank 0 + x of rank 1 + …, or y + x of rank 0 + …, in this order; y may be one of them.
template <class T>
void add_in_order(const std::vector<const void*>& x, int64_t count, T* y, bool adds) {
  parallel((count + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t end = std::min(count, (block + 1) * kBlock);
    for (int64_t at = block * kBlock; at < end; at += kRun) {
      const int64_t n = std::min(kRun, end - at);
      T sum[kRun];
      std::memcpy(sum, (adds ? y : static_cast<const T*>(x[0])) + at, static_cast<size_t>(n) * sizeof(T));
      for (size_t r = adds ? 0 : 1; r < x.size(); ++r) {
        const T* of_rank = static_cast<const T*>(x[r]) + at;
        for (int64_t i = 0; i < n; ++i) sum[i] = plus(sum[i], of_rank[i]);
      }
      std::memcpy(y + at, sum, static_cast<size_t>(n) * sizeof(T));
    }
  });
}

void check_sum(uint32_t dtype) {
  if (dtype != GALLEY_F32 && dtype != GALLEY_F64 && dtype != GALLEY_I32 && dtype != GALLEY_BF16 && dtype != GALLEY_F16)
    unsupported("sums are of F32, F64, BF16, F16 or I32");
}
/// Calls body(T()) with the type of a dtype's numbers.
template <class Body>
void with_type(uint32_t dtype, const Body& body) {
  switch (dtype) {
    case GALLEY_F64: return body(double());
    case GALLEY_I32: return body(uint32_t());
    case GALLEY_BF16: return body(Bf16());
    case GALLEY_F16: return body(F16());
    default: return body(float());
  }
}

/// What the kernels have in common: a tensor in parts, of which the rank at place p of its group has the p-th.
class Exchange {
 public:
  Exchange(const Node& n, const galley_kernel_setup& setup, std::vector<Parts::Part> parts, int64_t element)
      : node_(n),
        group_(group_for(n, setup)),
        ranks_(*static_cast<Ranks*>(setup.ranks)),
        messages_(ranks_, group_),
        parts_(std::move(parts)),
        largest_(largest_of(parts_)),
        element_(element),
        workspace_(static_cast<char*>(setup.workspace)),
        from_(parts_.size()) {}

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
  static int64_t slot_bytes(int64_t ranks, int64_t largest_bytes) { return std::min({kSlot, kSlots / ranks / 8 * 8, largest_bytes}); }
  /// For `scatter`.
  static int64_t scatter_bytes(const std::vector<Parts::Part>& parts, int64_t element) {
    const auto ranks = static_cast<int64_t>(parts.size());
    return ranks * slot_bytes(ranks, largest_of(parts) * element);
  }

  const Parts::Part& own() const { return parts_[static_cast<size_t>(group_.place())]; }

  /// y, this rank's part, = [y +] the part of x of each rank, one after the other. y may be that part of x itself.
  template <class T>
  void scatter(const T* x, T* y, bool adds) {
    const int64_t slot = slot_bytes(group_.places(), largest_ * element_) / element_;
    for (int64_t done = 0; done < largest_; done += slot) {
      const int64_t mine = piece(own(), done, slot);
      receive_slots(x + own().first + done, slot * element_, mine * element_, [&](int64_t to) {
        const Parts::Part& its = parts_[static_cast<size_t>(to)];
        return From{x + its.first + done, piece(its, done, slot) * element_};
      });
      add_in_order(from_, mine, y + done, adds);
    }
  }

  /// x of all ranks of the group, which is small: from_ says where they are then.
  void gather_small(const void* x, int64_t bytes) {
    if (!group_.is_whole_run()) return receive_slots(x, bytes, bytes, [&](int64_t) { return From{x, bytes}; });
    ranks_.gather(x, bytes, workspace_);
    for (size_t r = 0; r < from_.size(); ++r) from_[r] = workspace_ + static_cast<int64_t>(r) * bytes;
  }

  /// Each rank's part of `whole` is there; then all are.
  void gather(char* whole) {
    const int64_t most = kMessage / element_;
    for (int64_t done = 0; done < largest_; done += most) {
      messages_.swap(
          [&](int64_t) {
            return From{whole + (own().first + done) * element_, piece(own(), done, most) * element_};
          },
          [&](int64_t from) {
            const Parts::Part& its = parts_[static_cast<size_t>(from)];
            return To{whole + (its.first + done) * element_, piece(its, done, most) * element_};
          });
    }
  }

  Node node_;
  Group group_;
  Ranks& ranks_;
  Messages messages_;
  std::vector<Parts::Part> parts_;
  int64_t largest_, element_;  // elements; bytes
  char* workspace_;
  std::vector<const void*> from_;  // where the numbers of each rank are, of the sum that is made, by place

 private:
  /// Sends by `send`, and receives so many bytes from each other rank into slots of the workspace; from_ says where all are then.
  /// `own`: this rank's.
  template <class Send>
  void receive_slots(const void* own, int64_t slot, int64_t bytes, const Send& send) {
    for (int64_t p = 0; p < group_.places(); ++p) from_[static_cast<size_t>(p)] = p == group_.place() ? own : workspace_ + p * slot;
    messages_.swap(send, [&](int64_t from) { return To{workspace_ + from * slot, bytes}; });
  }
  static int64_t piece(const Parts::Part& part, int64_t done, int64_t most) { return std::clamp<int64_t>(part.count - done, 0, most); }
};

/// all_reduce, and all_reduce_here, which has no output.
class AllReduce : Exchange {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan& plan) {
    several(n);
    const uint32_t dtype = n.in(0).dtype;
    check_sum(dtype);
    const int64_t all = ranks_of(n) * galley_operand_bytes(&n.in(0));
    plan.workspace_bytes = all <= kSmall ? all : scatter_bytes(even_parts(ranks_of(n), count(n.in(0))), galley_dtype_bytes(dtype));
  }
  AllReduce(const Node& n, const galley_kernel_setup& setup)
      : Exchange(n, setup, even_parts(ranks_of(n), count(n.in(0))), galley_dtype_bytes(n.in(0).dtype)) {}
  void run() {
    with_type(node_.in(0).dtype, [&](auto number) { run_as<decltype(number)>(); });
  }

 private:
  template <class T>
  void run_as() {
    const bool here = !node_.has_out(0), adds = !here && node_.accumulates(0);
    const T* const x = node_.read<T>(0);
    T* const y = here ? node_.update<T>(0) : node_.write<T>(0);
    const int64_t numbers = count(node_.in(0)), bytes = numbers * element_;
    named([&] {
      if (numbers == 0) return;
      if (group_.places() * bytes <= kSmall) {
        gather_small(x, bytes);
        return add_in_order(from_, numbers, y, adds);
      }
      scatter(x, y + own().first, adds);
      gather(reinterpret_cast<char*>(y));
    });
  }
};

class ReduceScatter : Exchange {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan& plan) {
    several(n);
    check_sum(n.in(0).dtype);
    plan.workspace_bytes = scatter_bytes(parts_of(n), galley_dtype_bytes(n.in(0).dtype));
  }
  ReduceScatter(const Node& n, const galley_kernel_setup& setup) : Exchange(n, setup, parts_of(n), galley_dtype_bytes(n.in(0).dtype)) {}
  void run() {
    with_type(node_.in(0).dtype, [&](auto number) {
      using T = decltype(number);
      named([&] { scatter(node_.read<T>(0), node_.write<T>(0), node_.accumulates(0)); });
    });
  }
};

/// all_gather, and all_gather_here, which has no output.
class AllGather : Exchange {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan&) { several(n); }
  AllGather(const Node& n, const galley_kernel_setup& setup) : Exchange(n, setup, parts_of(n), galley_dtype_bytes(n.in(0).dtype)) {}
  void run() {
    char* const whole = node_.has_out(0) ? node_.write<char>(0) : node_.update<char>(0);
    if (node_.has_out(0) && own().count)
      std::memcpy(whole + own().first * element_, node_.read<char>(0), static_cast<size_t>(own().count * element_));
    named([&] { gather(whole); });
  }
};

const bool added =
    add(kernel_of<AllReduce>("all_reduce_here.mpi", "all_reduce_here")) && add(kernel_of<AllReduce>("all_reduce.mpi", "all_reduce")) &&
    add(kernel_of<ReduceScatter>("reduce_scatter.mpi", "reduce_scatter")) && add(kernel_of<AllGather>("all_gather.mpi", "all_gather")) &&
    add(kernel_of<AllGather>("all_gather_here.mpi", "all_gather_here"));

}  // namespace
}  // namespace galley::mpi

GALLEY_PLUGIN("mpi", "1.0.0");
