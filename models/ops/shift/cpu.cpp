// shift: one pass over x and y.
#include "cpu/vector.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

void shift(const Node& n, void*) {
  const int32_t* x = n.read<int32_t>(0);
  int32_t* y = n.write<int32_t>(0);
  const auto by = static_cast<int32_t>(n.i("by", 0));
  cpu::over_elements(count(n.in(0)), [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) y[i] = x[i] + by;
  });
}

bool supported(const Node&) { return true; }

const bool added = add(kernel<shift, supported>("shift.cpu", "shift"));

}  // namespace
