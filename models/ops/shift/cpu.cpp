// shift, shift_long: one pass over x and y.
#include "cpu/vector.hpp"

namespace galley::cpu::shift_op {
namespace {

using namespace sdk;

void shift(const Node& n, void*) {
  const int32_t* x = n.read<int32_t>(0);
  int32_t* y = n.write<int32_t>(0);
  const auto by = static_cast<int32_t>(n.i("by", 0));
  cpu::over_elements(count(n.in(0)), [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) y[i] = x[i] + by;
  });
}

void shift_long(const Node& n, void*) {
  const int32_t *x = n.read<int32_t>(0), *last_key = n.read<int32_t>(1);
  int32_t* y = n.write<int32_t>(0);
  const auto by = static_cast<int32_t>(n.i("by", 0));
  const int64_t longer = n.i("longer_than", 0), S = columns(n.in(0));
  cpu::over_elements(count(n.in(0)), [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) y[i] = x[i] + (x[i / S * S + last_key[i]] >= longer ? by : 0);
  });
}

bool supported(const Node&) { return true; }

const bool added =
    add(kernel<shift, supported>("shift.cpu", "shift")) && add(kernel<shift_long, supported>("shift_long.cpu", "shift_long"));

}  // namespace
}  // namespace galley::cpu::shift_op
