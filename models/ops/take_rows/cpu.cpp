// take_rows: one copy of C numbers for each row taken.
#include <cstring>
#include <string>

#include "cpu/vector.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

void take_rows(const Node& n, void*) {
  const float* x = n.read<float>(0);  // (R, C)
  const int32_t* index = n.read<int32_t>(1);
  float* y = n.write<float>(0);  // (n, C)
  const int64_t R = rows(n.in(0)), C = columns(n.in(0)), taken = count(n.in(1));
  for (int64_t k = 0; k < taken; ++k)
    if (index[k] < 0 || index[k] >= R)
      invalid(std::string(n.name()) + ": index " + std::to_string(index[k]) + " is not one of the " + std::to_string(R) + " rows of x");
  cpu::over_rows(taken, C, [=](int64_t k) { std::memcpy(y + k * C, x + index[k] * C, static_cast<size_t>(C) * sizeof(float)); });
}

const bool added = add(kernel<take_rows, cpu::all_f32>("take_rows.cpu", "take_rows"));

}  // namespace
