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

template <class From>
void convert_from(const Node& n) {
  switch (n.out(0).dtype) {
    case GALLEY_F64: return convert<From, double>(n);
    case GALLEY_F32: return convert<From, float>(n);
    case GALLEY_F16: return convert<From, cpu::F16>(n);
    default: return convert<From, cpu::Bf16>(n);
  }
}

bool floating(uint32_t dtype) { return dtype == GALLEY_F64 || dtype == GALLEY_F32 || dtype == GALLEY_F16 || dtype == GALLEY_BF16; }

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
  switch (x.dtype) {
    case GALLEY_F64: return convert_from<double>(n);
    case GALLEY_F32: return convert_from<float>(n);
    case GALLEY_F16: return convert_from<cpu::F16>(n);
    default: return convert_from<cpu::Bf16>(n);
  }
}

const bool added = add(kernel<copy, supports>("copy.cpu", "copy"));

}  // namespace
