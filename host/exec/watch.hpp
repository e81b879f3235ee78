// Lets proofs watch a program while it runs: poison and reference mode (host/proofs). The executor knows no more of them than this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "host/base/result.hpp"
#include "host/exec/machine.hpp"

namespace galley {

/// Is called before and after each instruction; the device has then done all instructions before. Errors end the run: they say what is
/// wrong, and the executor adds where. Each function does nothing unless a watch overrides it.
class Watch {
 public:
  virtual ~Watch() = default;
  /// A segment begins.
  virtual Status begin(SegmentKind) { return ok(); }
  /// A kernel's `prepare` has returned.
  virtual Status prepared(const Instruction&) { return ok(); }
  virtual Status before(SegmentKind, [[maybe_unused]] size_t index, [[maybe_unused]] bool later) { return ok(); }
  /// Runs an instruction by `body`, at least once. `later`: second or later micro-batch.
  virtual Status run(const Instruction&, [[maybe_unused]] bool later, const std::function<Status()>& body) { return body(); }
  virtual Status after(SegmentKind, [[maybe_unused]] size_t index, [[maybe_unused]] bool later) { return ok(); }
  /// An input has been copied from byte `offset` of the window.
  virtual Status fed(TensorId, [[maybe_unused]] int64_t offset) { return ok(); }
  /// What was exported is there.
  virtual Status exported(const std::filesystem::path&) { return ok(); }
};

/// Makes a watch of an executor's program, on its machine, all of which outlive it.
using MakeWatch = std::function<std::unique_ptr<Watch>(const Program&, const Plan&, Machine&)>;

/// The watches of an executor. If there are any, each instruction waits for the one before it.
struct Watching {
  std::vector<MakeWatch> by;  ///< called in this order; the first one's run() is the outermost
  HostCopies copies = HostCopies::No;
};

}  // namespace galley
