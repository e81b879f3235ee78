// Poison mode: every instruction runs on an arena that is junk but for its own operands.
//
// What the tensors hold lies in a copy of each arena (Machine::host_address). Before an instruction the operands that it reads are copied
// in; its outputs and its workspace stay junk. Afterwards what it wrote is copied out, everything is made junk again, and the instruction
// is at fault when
//   - a byte of the arena beyond its operands and workspace changed: it wrote outside;
//   - an operand that it only reads changed;
//   - a floating operand that it wrote holds the junk NaN itself: it read outside its operands, or what nobody had written, or left a part
//     of the output out. (The junk NaN has all bits set. Arithmetic hands that pattern on, and makes another one for NaNs of its own.)
// A tensor whose lifetime is over becomes junk in the copy as well. All of it costs a pass over the arena for each instruction: a mode for
// tests.
#pragma once

#include <array>
#include <vector>

#include "host/exec/machine.hpp"

namespace galley {

class Poisoner {
 public:
  /// All three outlive it.
  Poisoner(const Program& program, const Plan& plan, Machine& machine);

  /// Brings in what the instruction reads. `later`: second or later micro-batch.
  Status before(const Instruction& code, bool later);
  /// The instruction is over and the device synchronized. The error says what it did; the caller adds which one it was.
  Status after(SegmentKind kind, size_t index);

 private:
  struct Range {
    size_t memory = 0;
    int64_t offset = 0;  ///< in the arena
    int64_t bytes = 0;
    TensorId tensor = no_tensor;
    uint32_t dtype = 0;
    bool reads = false;
    bool writes = false;
  };
  void add(const Operand& operand, bool later, bool output);
  std::span<std::byte> copy_of(const Range& range);
  Status check_reads();
  Status check_stray();
  Status check_taint();
  std::string behind(size_t memory, int64_t offset) const;

  const Program& program_;
  const Plan& plan_;
  Machine& machine_;
  std::vector<Range> ranges_;                               ///< of the instruction in hand; a workspace neither reads nor writes
  std::array<std::vector<std::vector<TensorId>>, 6> ends_;  ///< tensors whose last use an instruction is
  std::vector<std::byte> scratch_;
};

}  // namespace galley
