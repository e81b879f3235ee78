#include "host/graph/step_scalars.hpp"

#include <algorithm>

namespace galley {
namespace {

struct ScalarShape {
  uint32_t which;
  const char* name;
  uint32_t dtype;
  int64_t count;
};
constexpr ScalarShape scalar_shapes[] = {
    {GALLEY_SCALAR_ATTEMPTED_STEP, "attempted_step", GALLEY_I64, 1},
    {GALLEY_SCALAR_WINDOW_TOKENS, "window_tokens", GALLEY_F64, 1},
    {GALLEY_SCALAR_APPLIED_STEP, "applied_step", GALLEY_I64, 1},
    {GALLEY_SCALAR_APPLY, "apply", GALLEY_I32, 1},
    {GALLEY_SCALAR_LOSS_SCALE, "loss_scale", GALLEY_F32, 1},
    {GALLEY_SCALAR_LOSS_SEED, "loss_seed", GALLEY_F32, 1},
    {GALLEY_SCALAR_GRADIENT_NORM, "gradient_norm", GALLEY_F32, 1},
    {GALLEY_SCALAR_GRADIENT_FACTOR, "gradient_factor", GALLEY_F32, 1},
    {GALLEY_SCALAR_FOUND_INF, "found_inf", GALLEY_I32, 1},
    {GALLEY_SCALAR_RANDOM, "random", GALLEY_I64, 4},
    {GALLEY_SCALAR_LOSS, "loss", GALLEY_F64, 1},
};

// Each scalar on a cache line of its own: kernels on different threads write some of them.
constexpr int64_t slot_stride = 64;

}  // namespace

StepScalars::StepScalars(Graph& graph) : graph_(graph) {
  GraphTensor all;
  all.name = "step scalars";
  all.dtype = GALLEY_U8;
  all.shape = {0};
  all.kind = GALLEY_KIND_SCALAR;
  tensor = *graph_.make(std::move(all));
  // All of them, whether or not a node asks: the host reads some, and writes the first.
  for (const ScalarShape& s : scalar_shapes) {
    (void)*get(s.which);
    if (s.which == GALLEY_SCALAR_WINDOW_TOKENS) host_bytes = bytes;
  }
}

Result<galley_tensor> StepScalars::get(uint32_t which) {
  for (const ScalarShape& s : scalar_shapes) {
    if (s.which != which) continue;
    const std::string name = std::string("scalar.") + s.name;
    if (const galley_tensor found = graph_.find(name)) return found;
    ScalarSlot slot;
    slot.which = which;
    slot.dtype = s.dtype;
    slot.bytes = s.count * galley_dtype_bytes(s.dtype);
    return add(std::move(slot), name);
  }
  return plugin_error("no step scalar " + std::to_string(which));
}

Result<galley_tensor> StepScalars::add(ScalarSlot slot, const std::string& name) {
  slot.offset = reserve(slot.bytes);
  slot.tensor_name = name;
  slots.push_back(slot);
  return in_block(name, slot.dtype, slot.bytes / std::max<int64_t>(1, galley_dtype_bytes(slot.dtype)), slot.offset);
}

int64_t StepScalars::reserve(int64_t more) {
  const int64_t offset = bytes;
  bytes += round_up(more, slot_stride);
  graph_.tensor(tensor).shape = {bytes};
  return offset;
}

Result<galley_tensor> StepScalars::in_block(const std::string& name, uint32_t dtype, int64_t count, int64_t offset) {
  GraphTensor t;
  t.name = name;
  t.dtype = dtype;
  t.shape = {count};
  t.kind = GALLEY_KIND_SCALAR;
  t.slice = {tensor, offset};
  return graph_.make(std::move(t));
}

Result<galley_tensor> StepScalars::in_host_block(const std::string& name, uint32_t dtype, int64_t count) {
  const int64_t before = bytes, offset = host_bytes;
  reserve(count * galley_dtype_bytes(dtype));
  const int64_t added = bytes - before;
  for (galley_tensor t = 1; t <= graph_.tensor_count(); ++t)
    if (Slice& slice = graph_.tensor(t).slice; slice.of == tensor && slice.offset >= offset) slice.offset += added;
  for (ScalarSlot& s : slots)
    if (s.offset >= offset) s.offset += added;
  host_bytes += added;
  return in_block(name, dtype, count, offset);
}

}  // namespace galley
