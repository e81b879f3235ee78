// take_rows: one copy of C numbers for each row taken; converted where the dtypes differ.
#include <string>

#include "cpu/number.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

void take_rows(const Node& n, void*) {
  const cpu::Input x(n, 0);  // (R, C)
  const int32_t* index = n.read<int32_t>(1);
  const cpu::Output y(n, 0);  // (n, C)
  const int64_t R = rows(n.in(0)), C = columns(n.in(0)), taken = count(n.in(1));
  for (int64_t k = 0; k < taken; ++k)
    if (index[k] < 0 || index[k] >= R)
      invalid(std::string(n.name()) + ": index " + std::to_string(index[k]) + " is not one of the " + std::to_string(R) + " rows of x");
  cpu::over_rows(taken, C, [=](int64_t k) {
    cpu::Buffer buffer;
    cpu::in_runs(0, C, cpu::run_length, [&](int64_t c, int64_t size) {
      float* const to = y.open(k * C + c, size, buffer);
      x.copy(index[k] * C + c, size, to);
      y.close(k * C + c, size, to);
    });
  });
}

const bool added = add(kernel<take_rows, cpu::all_numbers>("take_rows.cpu", "take_rows"));

}  // namespace
