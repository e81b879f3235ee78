// The step scalars as the host sees them: what it alone knows goes into the step image, and what it reads comes from the readback
// (program.hpp). Everything between is computed on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "host/exec/machine.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// What the host knows of a step.
struct StepBegin {
  int64_t attempted = 1;      ///< from 1; its window is attempted − 1
  int64_t window_tokens = 0;  ///< valid tokens of the whole window
  int64_t applied = 1;        ///< the least applied step that it can be: those before it that are under way may be skipped
};

/// Allocates only when made. One thread.
class Scalars {
 public:
  /// Both outlive it.
  Scalars(const Program& program, Machine& machine);

  /// Fills the image. The device must have taken what was in it before.
  void tell(const StepBegin& begin);
  /// Keeps what has been read back: the next update may overwrite it.
  void take();
  /// A number of what was taken last.
  double at(const Operand& number) const;
  double at(uint32_t which) const;

 private:
  const Program& program_;
  Machine& machine_;
  std::vector<std::byte> taken_;
};

}  // namespace galley
