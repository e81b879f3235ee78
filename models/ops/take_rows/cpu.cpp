// take_rows: one copy of C numbers for each row taken; converted where the dtypes differ. take_rows_grad without an index: one for each row
// of dx, of dy or of zeros. (With one, it is embedding_grad's kernel.)
#include <string>

#include "cpu/number.hpp"

namespace galley::cpu::take_rows_op {
namespace {

using namespace sdk;

void take_rows(const Node& n, void*) {
  const cpu::Input x(n, 0);  // (R, C)
  const int32_t* index = n.read<int32_t>(1);
  const cpu::Output y(n, 0);  // (n, C)
  const int64_t R = rows(n.in(0)), C = columns(n.in(0)), taken = rows(n.out(0)), S = R / taken, at = n.i("position", 0);
  for (int64_t k = 0; index && k < taken; ++k)
    if (index[k] < 0 || index[k] >= R)
      invalid(std::string(n.name()) + ": index " + std::to_string(index[k]) + " is not one of the " + std::to_string(R) + " rows of x");
  cpu::over_rows(taken, C, [=](int64_t k) {
    cpu::Buffer buffer;
    const int64_t row = index ? index[k] : k * S + at;
    cpu::in_runs(0, C, cpu::run_length, [&](int64_t c, int64_t size) {
      float* const to = y.open(k * C + c, size, buffer);
      x.copy(row * C + c, size, to);
      y.close(k * C + c, size, to);
    });
  });
}

void at_position(const Node& n, void*) {
  const cpu::Input dy(n, 0);   // (B, C)
  const cpu::Output dx(n, 0);  // (B, S, C)
  const int64_t R = rows(n.out(0)), C = columns(n.out(0)), S = n.out(0).shape[1], at = n.i("position", 0);
  cpu::over_rows(R, C, [=](int64_t r) {
    const bool taken = r % S == at;
    if (!taken && dx.adds()) return;
    cpu::Buffer read, buffer;
    cpu::in_runs(0, C, cpu::run_length, [&](int64_t c, int64_t size) {
      float* const to = dx.open(r * C + c, size, buffer);
      if (taken) {
        const float* from = dy.read(r / S * C + c, size, read);
        cpu::by_access(dx.adds(), [&](auto add) {
          for (int64_t i = 0; i < size; ++i) cpu::put(add, to[i], from[i]);
        });
      } else {
        std::fill(to, to + size, 0.0f);
      }
      dx.close(r * C + c, size, to);
    });
  });
}
bool without_index(const Node& n) { return cpu::all_numbers(n) && !n.has(1); }

const bool added = add(kernel<take_rows, cpu::all_numbers>("take_rows.cpu", "take_rows")) &&
                   add(kernel<at_position, without_index>("take_rows_grad.position", "take_rows_grad"));

}  // namespace
}  // namespace galley::cpu::take_rows_op
