// The ops of ops.cpp on the CPU: once a run.
#include <algorithm>
#include <random>

#include "galley/cpp/plugin.hpp"
#include "random.hpp"

namespace {

using namespace galley::sdk;

void run_random(const Node& node, void*) {
  const galley::vera::Draws draws(node);
  std::mt19937 generator(draws.key);
  generator.discard(static_cast<unsigned long long>(draws.before));
  for (int64_t i = 0; i < count(node.out(0)); ++i)
    node.write<float>(0)[i] = static_cast<float>(galley::vera::uniform(static_cast<uint32_t>(generator()), draws.bound));
}

void run_slice(const Node& node, void*) {
  const int64_t rows = node.out(0).shape[0], columns = node.out(0).shape[1], all = node.in(0).shape[1];
  for (int64_t r = 0; r < rows; ++r) std::copy_n(node.read<float>(0) + r * all, columns, node.write<float>(0) + r * columns);
}

const bool added = add(kernel<run_random>("vera_random.cpu", "vera_random")) && add(kernel<run_slice>("vera_slice.cpu", "vera_slice"));

}  // namespace

GALLEY_PLUGIN("vera", "1.0.0");
