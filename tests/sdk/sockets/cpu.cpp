// The kernels of exchanges: all processes give each other what they have, and each adds or takes what it needs.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "galley/cpp/exchange.hpp"
#include "galley/cpp/plugin.hpp"
#include "ranks.hpp"

namespace sockets {
namespace {

using namespace galley::sdk;

/// What the kernels have in common.
class Exchange {
 public:
  Exchange(const Node& n, const galley_kernel_setup& setup) : node_(n), ranks_(*static_cast<Ranks*>(setup.ranks)) {
    if (!Group(n, ranks_.rank(), ranks_.ranks()).is_whole_run()) unsupported("an exchange among some of the run's processes");
  }

 protected:
  static void several(const Node& n) {
    if (n.i("ranks", 0) < 2) unsupported("there is one rank");
  }
  static bool adds_up(uint32_t dtype) { return dtype == GALLEY_F32 || dtype == GALLEY_F64; }

  /// y = [y +] the numbers from `first` on of all processes, in their order.
  template <class T>
  void add(int64_t first, int64_t count, T* y, bool adds) {
    const int64_t all = galley::sdk::count(node_.in(0));
    std::vector<T> given(static_cast<size_t>(ranks_.ranks() * all));
    ranks_.exchange(node_.read<T>(0), all * static_cast<int64_t>(sizeof(T)), given.data());
    for (int64_t i = 0; i < count; ++i) {
      T sum = adds ? y[i] : given[static_cast<size_t>(first + i)];
      for (int64_t r = adds ? 0 : 1; r < ranks_.ranks(); ++r) sum += given[static_cast<size_t>(r * all + first + i)];
      y[i] = sum;
    }
  }

  Node node_;
  Ranks& ranks_;
};

class AllReduce : Exchange {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan&) {
    several(n);
    if (!adds_up(n.in(0).dtype)) unsupported("sums are of F32 or F64");
  }
  AllReduce(const Node& n, const galley_kernel_setup& setup) : Exchange(n, setup) {}
  void run() {
    if (node_.in(0).dtype == GALLEY_F64) run_as<double>();
    else run_as<float>();
  }

 private:
  template <class T>
  void run_as() {
    const bool here = !node_.has_out(0);
    add<T>(0, count(node_.in(0)), here ? node_.update<T>(0) : node_.write<T>(0), !here && node_.accumulates(0));
  }
};

class ReduceScatter : Exchange {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan&) {
    several(n);
    if (n.in(0).dtype != GALLEY_F32) unsupported("sums of parts are of F32");
  }
  ReduceScatter(const Node& n, const galley_kernel_setup& setup) : Exchange(n, setup) {}
  void run() {
    const Parts::Part own = Parts(node_).own();
    add<float>(own.first, own.count, node_.write<float>(0), node_.accumulates(0));
  }
};

class AllGather : Exchange {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan&) { several(n); }
  AllGather(const Node& n, const galley_kernel_setup& setup) : Exchange(n, setup) {}
  void run() {
    const Parts parts(node_);
    const int64_t size = galley_dtype_bytes(node_.in(0).dtype);
    int64_t most = 0;
    for (int64_t r = 0; r < parts.ranks(); ++r) most = std::max(most, parts.of(r).count * size);
    std::vector<char> mine(static_cast<size_t>(most)), all(static_cast<size_t>(most * parts.ranks()));
    const bool here = !node_.has_out(0);
    char* const y = here ? node_.update<char>(0) : node_.write<char>(0);
    const Parts::Part own = parts.own();
    if (own.count) std::memcpy(mine.data(), here ? y + own.first * size : node_.read<char>(0), static_cast<size_t>(own.count * size));
    ranks_.exchange(mine.data(), most, all.data());
    for (int64_t r = 0; r < parts.ranks(); ++r)
      if (const Parts::Part part = parts.of(r); part.count)
        std::memcpy(y + part.first * size, all.data() + r * most, static_cast<size_t>(part.count * size));
  }
};

const bool added = add(kernel_of<AllReduce>("all_reduce_here.sockets", "all_reduce_here")) &&
                   add(kernel_of<AllReduce>("all_reduce.sockets", "all_reduce")) &&
                   add(kernel_of<ReduceScatter>("reduce_scatter.sockets", "reduce_scatter")) &&
                   add(kernel_of<AllGather>("all_gather.sockets", "all_gather")) &&
                   add(kernel_of<AllGather>("all_gather_here.sockets", "all_gather_here"));

}  // namespace
}  // namespace sockets

GALLEY_PLUGIN("sockets", "1.0.0");
