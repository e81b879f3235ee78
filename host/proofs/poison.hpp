// Poison mode: every kernel and copy runs twice, each time on an arena that is junk but for its own operands, with two different kinds of
// junk.
//
// What the tensors hold lies in a copy of each arena (HostCopies). Before a run the operands that the instruction reads are
// copied in; its outputs and its workspace stay junk. Afterwards what it wrote is copied out and everything is made junk again. The
// instruction is at fault when
//   - a byte of the arena beyond its operands and workspace changed: it wrote outside;
//   - an operand that it only reads changed;
//   - a byte that it wrote differs between the two runs: it read outside its operands, or what nobody had written, or left a part of the
// output out;
//   - what it adds to something does not follow what is there: an instruction that adds runs a third time, on other contents of what it
// adds to, and what it leaves has to differ by as much.
// The first kind of junk has all bits set, a NaN in every floating dtype. The second differs from byte to byte, so that a value that is
// computed from junk and put back where it came from is not the same. A tensor whose lifetime is over becomes junk in the copy as well.
// All of it costs some passes over the arena for each instruction: a mode for tests.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "host/exec/watch.hpp"

namespace galley {

class Poisoner : public Watch {
 public:
  /// All three arguments outlive it.
  Poisoner(const Program& program, const Plan& plan, Machine& machine);

  /// Runs a kernel or a copy twice. What the host does itself needs no poison, because it uses the host's addresses.
  Status run(const Instruction& code, bool later, const std::function<Status()>& body) override;
  /// Checks a kernel's `prepare`, which may write to its operands, its workspace and its constants only. What it has written to the
  /// constants stays.
  Status prepared(const Instruction& code) override;
  /// Makes junk of the tensors whose last use the instruction was.
  Status after(SegmentKind kind, size_t index, bool later) override;

 private:
  struct Range {
    size_t memory = 0;
    int64_t offset = 0;  ///< offset in the arena
    int64_t bytes = 0;
    TensorId tensor = no_tensor;
    uint32_t dtype = 0;
    bool reads = false;
    bool writes = false;
    bool adds = false;
  };
  void add(const Operand& operand, bool later, bool output);
  std::span<std::byte> copy_of(const Range& range);
  /// Writes the junk of one kind for bytes [offset, offset + out.size()) of an arena.
  static void junk(int kind, int64_t offset, std::span<std::byte> out);
  void add_all(TensorId tensor, bool reads);
  Status fill(int kind);  ///< fills every arena
  Status fill(int kind, const Range& range);
  Status bring_in(int kind);  ///< copies in what the instruction reads
  Status check_reads();
  Status check_stray(int kind);
  Status take_out();  ///< copies out what the first run has written
  Status compare();   ///< compares what the second has written
  Status check_adding(const std::function<Status()>& body);
  std::string past_end(size_t memory, int64_t offset) const;

  const Program& program_;
  const Plan& plan_;
  Machine& machine_;
  std::vector<Range> ranges_;  ///< ranges of the present instruction; a workspace neither reads nor writes
  std::array<std::vector<std::vector<TensorId>>, segment_count> ends_;  ///< tensors whose last use an instruction is
  std::vector<std::byte> scratch_;
  std::vector<std::vector<std::byte>> written_;  ///< what the first run has written, by range
  int kind_ = 0;                                 ///< the kind of junk in the arenas
};

}  // namespace galley
