// The step scalars: all numbers that change from step to step, in one tensor of the graph. The host writes its beginning before a step and
// reads all of it afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/graph/graph.hpp"
#include "host/plan/program.hpp"

namespace galley {

class StepScalars {
 public:
  /// Makes the tensor and the scalars that every step has (GALLEY_SCALAR_…), as the first tensors of `graph`, which must outlive this.
  explicit StepScalars(Graph& graph);
  StepScalars(const StepScalars&) = delete;
  StepScalars& operator=(const StepScalars&) = delete;

  /// Returns the tensor of a GALLEY_SCALAR_….
  Result<galley_tensor> get(uint32_t which);
  /// Makes a slot of its own for an option, as a tensor of this name.
  Result<galley_tensor> add(ScalarSlot slot, const std::string& name);
  /// Reserves bytes and returns their offset; in_block() makes a tensor of such bytes.
  int64_t reserve(int64_t bytes);
  Result<galley_tensor> in_block(const std::string& name, uint32_t dtype, int64_t count, int64_t offset);
  /// Makes a tensor in the host's part, at its end; what lies after moves on. Must be called before placement.
  Result<galley_tensor> in_host_block(const std::string& name, uint32_t dtype, int64_t count);

  galley_tensor tensor = 0;
  std::vector<ScalarSlot> slots;
  int64_t bytes = 0;
  int64_t host_bytes = 0;       ///< the host writes the first bytes, so many
  int64_t scheduled_from = -1;  ///< offset of the applied step to which each schedule's first value belongs; -1: there are no schedules

 private:
  Graph& graph_;
};

}  // namespace galley
