// Single numbers: one thread, no loop; and a copy of what is small.
#include <algorithm>
#include <cstring>

#include "galley/cpp/groups.hpp"

namespace galley::cpu::step_op {
namespace {

using namespace sdk;

void step_begin(const Node& n, void*) {
  *n.write<int64_t>(0) = *n.read<int64_t>(1) + 1;
  *n.write<int32_t>(1) = 1;
  *n.write<float>(2) = 1;
  int64_t* random = n.write<int64_t>(3);
  random[0] = n.i("seed", 0);
  random[1] = *n.read<int64_t>(0) - 1;
  random[2] = -n.i("rows", 0);
  random[3] = 0;
}

void loss_begin(const Node& n, void*) { *n.write<double>(0) = 0; }

void loss_seed(const Node& n, void*) {
  const double scale = *n.read<float>(0), tokens = *n.read<double>(1);
  *n.write<float>(0) = static_cast<float>(tokens > 0 ? scale / tokens : 0);
  *n.write<float>(1) = static_cast<float>(1 / scale);
}

/// Any number of options.
class Scheduled {
 public:
  static void query(const Nodes&, const galley_target&, galley_kernel_plan&) {}
  Scheduled(const Nodes& nodes, const galley_kernel_setup&) : nodes_(nodes) {}
  void run() const {
    for (const Node& n : nodes_) {
      const int64_t at = std::clamp<int64_t>(*n.read<int64_t>(0) - *n.read<int64_t>(1), 0, count(n.in(2)) - 1);
      *n.write<float>(0) = static_cast<float>(n.f("factor", 1) * n.read<double>(2)[at]);
    }
  }

 private:
  Nodes nodes_;
};

void next_rows(const Node& n, void*) { n.update<int64_t>(0)[2] += n.i("rows", 0); }

void step_end(const Node& n, void*) { *n.update<int64_t>(1) += *n.read<int32_t>(0) != 0; }

void put_back(const Node& n, void*) {
  if (!*n.read<int32_t>(2)) std::memcpy(n.update<char>(0), n.read<char>(1), static_cast<size_t>(galley_operand_bytes(&n.in(0))));
}

bool any(const Node&) { return true; }

const bool added =
    add(kernel<step_begin, any>("step_begin.cpu", "step_begin")) && add(kernel<loss_begin, any>("loss_begin.cpu", "loss_begin")) &&
    add(kernel<loss_seed, any>("loss_seed.cpu", "loss_seed")) && add(nodes_kernel<Scheduled>("scheduled.cpu", "scheduled")) &&
    add(kernel<next_rows, any>("next_rows.cpu", "next_rows")) && add(kernel<step_end, any>("step_end.cpu", "step_end")) &&
    add(kernel<put_back, any>("put_back.cpu", "put_back"));

}  // namespace
}  // namespace galley::cpu::step_op
