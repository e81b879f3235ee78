// Copies and conversions, at the bandwidth of the operands. Sums (the output accumulates) are made in F32, in F64 when both sides are F64,
// and rounded once.
#include <cstring>

#include "cpu/half.hpp"
#include "cpu/vector.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

using cpu::from_float;
using cpu::to_float;
float to_float(double x) { return static_cast<float>(x); }
void from_float(float x, double& y) { y = x; }

template <class From, class To>
void convert(const Node& n) {
  const From* x = n.read<From>(0);
  To* y = n.write<To>(0);
  cpu::by_access(n.accumulates(0), [&](auto add) {
    cpu::over_elements(count(n.in(0)), [=](int64_t first, int64_t last) {
      GALLEY_INDEPENDENT
      for (int64_t i = first; i < last; ++i) {
        if constexpr (std::is_same_v<From, double> && std::is_same_v<To, double>) {
          y[i] = decltype(add)::value ? y[i] + x[i] : x[i];
        } else {
          const float value = to_float(x[i]);
          from_float(decltype(add)::value ? to_float(y[i]) + value : value, y[i]);
        }
      }
    });
  });
}

// Calls body with a value of the C++ type; false for integers.
template <class Body>
bool by_dtype(uint32_t dtype, const Body& body) {
  switch (dtype) {
    case GALLEY_F64: body(double()); return true;
    case GALLEY_F32: body(float()); return true;
    case GALLEY_F16: body(cpu::F16()); return true;
    case GALLEY_BF16: body(cpu::Bf16()); return true;
    default: return false;
  }
}

bool floating(uint32_t dtype) {
  return by_dtype(dtype, [](auto) {});
}

bool supports(const Node& n) {
  const galley_operand &x = n.in(0), &y = n.out(0);
  return floating(x.dtype) ? floating(y.dtype) : x.dtype == y.dtype && !n.accumulates(0);
}

void copy(const Node& n, void*) {
  const galley_operand &x = n.in(0), &y = n.out(0);
  if (x.dtype == y.dtype && !n.accumulates(0)) {
    const auto* from = static_cast<const char*>(x.data);
    auto* to = static_cast<char*>(y.data);
    cpu::in_blocks(galley_operand_bytes(&x), 4 * cpu::block_elements,
                   [=](int64_t first, int64_t last) { std::memmove(to + first, from + first, static_cast<size_t>(last - first)); });
    return;
  }
  by_dtype(x.dtype, [&](auto from) { by_dtype(y.dtype, [&](auto to) { convert<decltype(from), decltype(to)>(n); }); });
}

const bool added = add(kernel<copy, supports>("copy.cpu", "copy"));

}  // namespace
