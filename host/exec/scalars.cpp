#include "host/exec/scalars.hpp"

#include <cstring>

namespace galley {
namespace {

const ScalarSlot* find(const Program& program, uint32_t which) {
  for (const ScalarSlot& slot : program.slots)
    if (slot.which == which) return &slot;
  return nullptr;
}

}  // namespace

Scalars::Scalars(const Program& program, Machine& machine) : program_(program), machine_(machine) {
  if (program.readback != no_tensor) taken_.resize(static_cast<size_t>(program.tensors[static_cast<size_t>(program.readback)].bytes));
}

void Scalars::take() {
  if (!taken_.empty()) std::memcpy(taken_.data(), machine_.host_address(program_.readback), taken_.size());
}

void Scalars::tell(const StepBegin& begin) {
  const auto put = [&](int64_t offset, auto value) {
    std::memcpy(machine_.host_address(program_.step_image, offset), &value, sizeof value);
  };
  const auto store = [&](uint32_t which, auto value) {
    if (const ScalarSlot* slot = find(program_, which)) put(slot->offset, value);
  };
  store(GALLEY_SCALAR_ATTEMPTED_STEP, begin.attempted);
  store(GALLEY_SCALAR_WINDOW_TOKENS, static_cast<double>(begin.window_tokens));
  if (program_.scheduled_from < 0) return;
  put(program_.scheduled_from, begin.applied);
  for (const ScalarSlot& slot : program_.slots)
    for (int64_t i = 0; slot.values >= 0 && i < program_.scheduled_values; ++i)
      put(slot.values + i * static_cast<int64_t>(sizeof(double)), slot.schedule.at(begin.applied + i));
}

double Scalars::at(const Operand& number) const {
  const std::byte* from = taken_.data() + number.offset;
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, from, sizeof value);
    return static_cast<double>(value);
  };
  switch (number.dtype) {
    case GALLEY_F64: return as(0.0);
    case GALLEY_F32: return as(0.0f);
    case GALLEY_I64: return as(int64_t{0});
    default: return as(int32_t{0});
  }
}

double Scalars::at(uint32_t which) const {
  const ScalarSlot* slot = find(program_, which);
  Operand number;
  number.tensor = program_.readback;
  number.offset = slot->offset;
  number.dtype = slot->dtype;
  return at(number);
}

}  // namespace galley
