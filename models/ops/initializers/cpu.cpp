// Initializers run once, in double, and are rounded to F32 at the end.
#include <algorithm>

#include "cpu/half.hpp"
#include "cpu/vector.hpp"
#include "ops/initializers/draws.hpp"

namespace galley::cpu::initializers_op {
namespace {

using namespace sdk;

template <class T>
void fill_with(const Node& n) {
  T* y = n.write<T>(0);
  T value;
  if constexpr (std::is_arithmetic_v<T>) value = static_cast<T>(n.f("value", 0));
  else from_float(static_cast<float>(n.f("value", 0)), value);
  cpu::over_elements(count(n.out(0)), [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) y[i] = value;
  });
}

void fill(const Node& n, void*) {
  switch (n.out(0).dtype) {
    case GALLEY_F64: return fill_with<double>(n);
    case GALLEY_F32: return fill_with<float>(n);
    case GALLEY_BF16: return fill_with<Bf16>(n);
    case GALLEY_F16: return fill_with<F16>(n);
    case GALLEY_I64: return fill_with<int64_t>(n);
    case GALLEY_I32: return fill_with<int32_t>(n);
    case GALLEY_I8: return fill_with<int8_t>(n);
    default: return fill_with<uint8_t>(n);
  }
}
bool fill_supports(const Node& n) {
  constexpr uint32_t known[] = {GALLEY_F64, GALLEY_F32, GALLEY_BF16, GALLEY_F16, GALLEY_I64, GALLEY_I32, GALLEY_I8, GALLEY_U8};
  return std::find(std::begin(known), std::end(known), n.out(0).dtype) != std::end(known);
}

void values(const Node& n, void*) {
  const galley_attr* a = galley_attr_find(n.view(), "values");
  float* y = n.write<float>(0);
  for (int64_t i = 0; i < count(n.out(0)); ++i) y[i] = static_cast<float>(static_cast<const double*>(a->data)[i]);
}

void random_normal(const Node& n, void*) {
  const galley::models::Draws draws(n);
  const double mean = n.f("mean", 0), deviation = n.f("std", 1);
  float* y = n.write<float>(0);
  cpu::over_elements(count(n.out(0)), [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) y[i] = static_cast<float>(mean + deviation * draws.normal(i));
  });
}

void random_uniform(const Node& n, void*) {
  const galley::models::Draws draws(n);
  const double low = n.f("low", 0), high = n.f("high", 1);
  float* y = n.write<float>(0);
  cpu::over_elements(count(n.out(0)), [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) y[i] = static_cast<float>(low + (high - low) * draws.uniform(i));
  });
}

const bool added = add(kernel<fill, fill_supports>("fill.cpu", "fill")) && add(kernel<values, cpu::all_f32>("values.cpu", "values")) &&
                   add(kernel<random_normal, cpu::all_f32>("random_normal.cpu", "random_normal")) &&
                   add(kernel<random_uniform, cpu::all_f32>("random_uniform.cpu", "random_uniform"));

}  // namespace
}  // namespace galley::cpu::initializers_op
