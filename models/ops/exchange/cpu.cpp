// Exchanges of one rank: the sum is its tensor, and its part the whole.
#include <cstring>

#include "cpu/number.hpp"

namespace galley::cpu::exchange_op {
namespace {

using namespace sdk;

bool alone(const Node& n) { return n.i("ranks", 0) == 1; }

void nothing(const Node&, void*) {}

void move(const Node& n, void*) {
  const auto* x = n.read<char>(0);
  auto* y = n.write<char>(0);
  cpu::in_blocks(galley_operand_bytes(&n.in(0)), 4 * cpu::block_elements,
                 [=](int64_t first, int64_t last) { std::memcpy(y + first, x + first, static_cast<size_t>(last - first)); });
}

template <class T>
void add_as(const Node& n) {
  const T* x = n.read<T>(0);
  T* y = n.write<T>(0);
  cpu::over_elements(count(n.in(0)), [=](int64_t first, int64_t last) {
    GALLEY_INDEPENDENT
    for (int64_t i = first; i < last; ++i) y[i] += x[i];
  });
}
void sum(const Node& n, void* workspace) {
  if (!n.accumulates(0)) return move(n, workspace);
  switch (n.in(0).dtype) {
    case GALLEY_F64: return add_as<double>(n);
    case GALLEY_I32: return add_as<uint32_t>(n);
    default: return cpu::map(n, [](float value) { return value; });
  }
}

const bool added =
    add(kernel<nothing, alone>("all_reduce_here.cpu", "all_reduce_here")) && add(kernel<sum, alone>("all_reduce.cpu", "all_reduce")) &&
    add(kernel<sum, alone>("reduce_scatter.cpu", "reduce_scatter")) && add(kernel<move, alone>("all_gather.cpu", "all_gather")) &&
    add(kernel<nothing, alone>("all_gather_here.cpu", "all_gather_here"));

}  // namespace
}  // namespace galley::cpu::exchange_op
