#include "host/exec/scalars.hpp"

#include <algorithm>
#include <cstring>

namespace galley {

Scalars::Scalars(const Program& program, Machine& machine, uint64_t seed)
    : program_(program), machine_(machine), seed_(seed), rows_(static_cast<size_t>(std::max<int64_t>(1, program.micro_batches))) {
  if (program.scalars != no_tensor) image_.resize(static_cast<size_t>(program.tensors[static_cast<size_t>(program.scalars)].bytes));
}

const ScalarSlot* Scalars::find(uint32_t which) const {
  for (const ScalarSlot& slot : program_.slots)
    if (slot.which == which && which != 0) return &slot;
  return nullptr;
}

template <class T>
void Scalars::set(const ScalarSlot& slot, T value) {
  const auto store = [&](auto number) { std::memcpy(image_.data() + slot.offset, &number, sizeof number); };
  switch (slot.dtype) {
    case GALLEY_F64: return store(static_cast<double>(value));
    case GALLEY_F32: return store(static_cast<float>(value));
    case GALLEY_I64: return store(static_cast<int64_t>(value));
    default: return store(static_cast<int32_t>(value));
  }
}

Status Scalars::begin_step(const StepBegin& begin) {
  TRY_STATUS(machine_.synchronize());
  window_ = begin.attempted - 1;
  for (const ScalarSlot& slot : program_.slots) {
    switch (slot.which) {
      case 0: set(slot, slot.factor * slot.schedule.at(begin.applied)); break;
      case GALLEY_SCALAR_ATTEMPTED_STEP: set(slot, begin.attempted); break;
      case GALLEY_SCALAR_APPLIED_STEP: set(slot, begin.applied); break;
      case GALLEY_SCALAR_APPLY: set(slot, int64_t{1}); break;
      case GALLEY_SCALAR_LOSS_SCALE: set(slot, begin.loss_scale); break;
      case GALLEY_SCALAR_WINDOW_TOKENS: set(slot, begin.window_tokens); break;
      case GALLEY_SCALAR_LOSS_SEED:
        set(slot, begin.window_tokens > 0 ? begin.loss_scale / static_cast<double>(begin.window_tokens) : 0.0);
        break;
      case GALLEY_SCALAR_GRADIENT_FACTOR: set(slot, 1.0 / begin.loss_scale); break;
      case GALLEY_SCALAR_RANDOM: {
        const Random random = {static_cast<int64_t>(seed_), window_, 0, 0};
        std::memcpy(image_.data() + slot.offset, random.data(), sizeof random);
        break;
      }
      default: std::memset(image_.data() + slot.offset, 0, static_cast<size_t>(slot.bytes));
    }
  }
  return program_.scalars == no_tensor ? ok() : machine_.put(program_.scalars, 0, image_);
}

Status Scalars::begin_micro(int64_t index) {
  const ScalarSlot* slot = find(GALLEY_SCALAR_RANDOM);
  if (!slot) return ok();
  const auto size = static_cast<int64_t>(rows_.size());
  if (index >= size) TRY_STATUS(machine_.synchronize());
  Random& random = rows_[static_cast<size_t>(index % size)];
  random = {static_cast<int64_t>(seed_), window_, index * program_.rows, 0};
  return machine_.put(program_.scalars, slot->offset, std::as_bytes(std::span(random)));
}

Result<double> Scalars::read(uint32_t which) {
  const ScalarSlot* slot = find(which);
  if (!slot) return run_error("this run has no step scalar " + std::to_string(which));
  std::array<std::byte, 8> bytes = {};
  TRY_STATUS(machine_.get(program_.scalars, slot->offset, std::span(bytes).first(static_cast<size_t>(galley_dtype_bytes(slot->dtype)))));
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, bytes.data(), sizeof value);
    return static_cast<double>(value);
  };
  switch (slot->dtype) {
    case GALLEY_F64: return as(0.0);
    case GALLEY_F32: return as(0.0f);
    case GALLEY_I64: return as(int64_t{0});
    default: return as(int32_t{0});
  }
}

}  // namespace galley
