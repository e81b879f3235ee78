// mish and mish_grad on the CPU. Operands are F32, BF16 or F16: Stored reads and writes them as F32, a tile at a time, which stays in the
// cache. Tiles are cut by the shape alone, so the result does not depend on the number of threads.
#include <galley/cpp/plugin.hpp>
#include <galley/cpp/stored.hpp>

#include <algorithm>

#include "rule.hpp"

namespace {

using namespace galley::sdk;

bool supports(const Node& node) {
  return Stored::takes(node.in(0)) && (!node.has(1) || Stored::takes(node.in(1))) && Stored::takes(node.out(0));
}

/// y = value(a, b, i) for each number i of a tile; b is null where there is no second input. Or y += value(…), where another node has
/// written to y before. y may lie where a does: number i is read before it is written.
template <class Value>
void each_number(const Node& node, const Value& value) {
  const Stored first(node.in(0)), second = node.has(1) ? Stored(node.in(1)) : Stored(), y(node.out(0));
  const int64_t n = count(node.out(0));
  const bool adds = node.accumulates(0);
  parallel((n + kStoredTile - 1) / kStoredTile, [&](int64_t tile) {
    alignas(64) float room[3][kStoredTile];
    const int64_t begin = tile * kStoredTile, size = std::min(kStoredTile, n - begin);
    const float *a = first.load(begin, size, room[0]), *b = second ? second.load(begin, size, room[1]) : nullptr;
    float* to = adds || y.in_place() ? y.load(begin, size, room[2]) : room[2];
    for (int64_t i = 0; i < size; ++i) to[i] = adds ? to[i] + value(a, b, i) : value(a, b, i);
    if (!y.in_place()) y.store(to, size, begin);
  });
}

void mish(const Node& node, void*) {
  each_number(node, [](const float* x, const float*, int64_t i) { return Mish()(x[i]); });
}
void mish_grad(const Node& node, void*) {
  each_number(node, [](const float* dy, const float* x, int64_t i) { return MishGrad()(dy[i], x[i]); });
}

const bool registered = add(kernel<mish, supports>("mish.cpu", "mish")) && add(kernel<mish_grad, supports>("mish_grad.cpu", "mish_grad"));

}  // namespace

GALLEY_PLUGIN("mish", "1.0.0");
