// The step scalars on the host's side: it writes what it alone knows into the step image, and reads results from the readback
// (program.hpp). The device computes everything between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "host/exec/machine.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// The numbers of a step that the host knows.
struct StepBegin {
  int64_t attempted = 1;      ///< from 1; the step's window is attempted − 1
  int64_t window_tokens = 0;  ///< valid tokens of the whole window
  int64_t applied = 1;        ///< the least applied step that it can be: earlier steps that are under way may be skipped
};

/// Allocates only when made. One thread.
class Scalars {
 public:
  /// Both arguments outlive it.
  Scalars(const Program& program, Machine& machine);

  /// Fills the image. The device must have taken what was in it before.
  void tell(const StepBegin& begin);
  /// Keeps a copy of the readback, which the next update may overwrite.
  void take();
  /// Return a number of that copy.
  double at(const Operand& number) const;
  double at(uint32_t which) const;

 private:
  const Program& program_;
  Machine& machine_;
  std::vector<std::byte> taken_;
};

}  // namespace galley
