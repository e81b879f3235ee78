// Reference mode: computes every instruction a second time, by the references of its ops (numbers.hpp), on the run's values and in the
// dtypes of its tensors, and compares the kernel's results with that. The run goes on with the kernel's numbers.
//
// It does not trust the program's memory. It keeps what each tensor holds as its writers left it, by tensor and not by address. So, besides
// a kernel that computes something else, it finds
//   - bytes that are not what was written: memory that two tensors share, a life that is too short, a stray write, a file read wrongly;
//   - a reader that finds another value than the graph gave it: an output that took over the bytes of an input too early;
//   - something read that nobody has written in this segment or window;
//   - an output that could add, but overwrites what somebody has written and nobody has read: a contribution that is lost;
//   - a constant that was made before what it is made of changed, or from something else than when it was loaded;
//   - a clone of recomputation that makes something else than the node did in forward, or that no node in forward stands for;
//   - a trained parameter that changes in a step which is to be skipped;
//   - an input that is not what the window holds; a file that is not what was to be written.
// Every instruction waits for the one before it, and the references take their time: a mode for tests.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/exec/watch.hpp"
#include "host/proofs/format_promise.hpp"
#include "host/proofs/gradients.hpp"
#include "host/proofs/stamps.hpp"

namespace galley {

/// Counts what was compared, over all executors that are given it.
struct ReferenceReport {
  struct Count {
    int64_t outputs = 0, numbers = 0;
    double worst = 0;  ///< the largest error, as a share of its bound
    std::string at;    ///< the segment and the node that had it
  };
  std::map<std::pair<std::string, uint32_t>, Count> compared;  ///< by op (or chain) and the dtype that is written
  std::map<std::string, int64_t> without;                      ///< instructions whose op has no reference, by op
  std::map<std::string, int64_t> segments;                     ///< instructions that were compared, by segment
  int64_t copies = 0, files = 0;
  std::map<std::string, int64_t> rules;        ///< gradient rules that were checked, one for each kind of node: how many, by op
  std::map<std::string, std::string> no_rule;  ///< why the rule of a node was not checked, by op
  int64_t promises = 0;                        ///< tensors that were compared with what their format promises
  /// What was wrong, if it was neither a kernel's numbers nor the program's memory.
  enum class Fault : uint8_t { Other, Rule, Promise } fault = Fault::Other;
  std::string format;  ///< Promise: the format's name

  int64_t rules_held() const;
  /// Returns one line: "reference: 1,234 outputs …".
  std::string text() const;
  std::string json() const;
};

/// The format whose pack op this is.
struct PackedFormat {
  std::string name;
  const galley_op* unpack = nullptr;
  std::vector<const FormatPromise*> promises;
};

/// What each instruction has left, for runs that have to leave the same.
struct Footprints {
  struct Written {
    std::string place;   ///< "update, 'step of w', of NAME (recipe.lua:9), kernel …"
    uint64_t bytes = 0;  ///< a checksum of what the instruction has written
  };
  std::vector<Written> written;
};

/// The scope of reference mode.
struct ReferenceScope {
  bool rules = false;                                     ///< gradient rules too, by finite differences (gradients.hpp)
  std::function<bool(const Instruction&)> computes = {};  ///< if given, says which instructions to compute again; of others, bytes are kept
  Footprints* trace = nullptr;                            ///< if given, takes what each kernel has written
};

struct ReferenceOptions {
  ReferenceReport* report = nullptr;  ///< null: no reference mode
  FindFormat formats = {};
  ReferenceScope scope = {};
  /// Returns the bytes that each process has, in the order of ranks; not given: there is one process.
  std::function<Result<std::vector<std::string>>(std::string_view)> exchange = {};
  OpLookup ops = {};                                                            ///< for gradient rules
  std::function<std::optional<PackedFormat>(const galley_op*)> packed_by = {};  ///< for promises; none: it packs nothing
};

class Reference : public Watch {
 public:
  /// All arguments but the options outlive it.
  Reference(const Program& program, const Plan& plan, Machine& machine, ReferenceOptions options);

  /// Begins a segment: forgets what has lived long enough, and takes what the host has written.
  Status begin(SegmentKind kind) override;
  Status before(SegmentKind kind, size_t index, bool later) override;
  Status after(SegmentKind kind, size_t index, bool later) override;
  Status fed(TensorId input, int64_t offset) override;
  Status exported(const std::filesystem::path& directory) override;

 private:
  struct Write {
    int64_t clock = 0;
    SegmentKind segment = SegmentKind::Load;
    int32_t index = -1;  ///< −1: the host
    TensorId value = no_tensor;
    TensorId tensor = no_tensor;
    bool read = false;
  };
  struct Held {
    std::vector<std::byte> bytes;
    Stamps made;          ///< stamp i is writes_[i − 1]
    int64_t written = 0;  ///< the clock of the last write, and of the last one that changed something
    int64_t changed = 0;
  };

  /// The results of a kernel's instruction: what it has written, and what the references compute.
  struct Kernel {
    SegmentKind segment;
    bool later;
    std::vector<std::pair<const Operand*, std::vector<std::byte>>> written;
    std::vector<std::vector<Made>> ways;  ///< 0: with operands as they are; then with moved ones

    uint32_t access(const Operand& o) const { return later ? o.later : o.access; }
    std::span<const std::byte> now(const Operand& o) const;  ///< empty: not written
  };

  const ProgramTensor& tensor(TensorId t) const { return program_.tensors[static_cast<size_t>(t)]; }
  Held& held(TensorId t) { return held_[static_cast<size_t>(t)]; }
  std::span<const std::byte> bytes_of(const Operand& o) {
    return std::span(held(o.tensor).bytes).subspan(static_cast<size_t>(o.offset), static_cast<size_t>(o.bytes()));
  }
  std::string writer_text(const Write& write) const;
  std::string overlap_text(TensorId t, int64_t offset, int64_t since) const;
  Status take_host(TensorId t);
  Result<std::vector<std::byte>> peek(TensorId t, int64_t offset, int64_t bytes);
  Status check_read(const Operand& o, SegmentKind kind);
  Status check_fresh(TensorId t, SegmentKind kind);
  Status check_lost(const Operand& o, const galley_operand_rule& rule, SegmentKind kind);
  Status check_skipped(const Operand& o, std::span<const std::byte> now, SegmentKind kind);
  /// `made` is the clock when these numbers were made.
  void keep(const Operand& o, std::span<const std::byte> bytes, SegmentKind kind, size_t index, int64_t made);
  Status after_kernel(const Instruction& code, SegmentKind kind, size_t index, bool later);
  /// Returns the numbers that all processes of an exchange have of an operand, in the order of their places.
  Result<Numbers> of_all(const Instruction& exchange, const Operand& o);
  Status check_node(const Instruction& code, const LaunchNode& node, size_t number, const Kernel& kernel);
  Status check_rule(const LaunchNode& node, const Values& inputs);
  Status check_promise(const Instruction& code, const LaunchNode& node, const Kernel& kernel);
  Status check_numbers(const Instruction& code, const LaunchNode& node, const Operand& o, size_t k, const Kernel& kernel, size_t number);
  Status check_clone(const Instruction& code, const LaunchNode& node, const Operand& o, size_t k, const Numbers& expected,
                     std::span<const Numbers* const> moved, Rounding rounding);
  Status after_read(const Instruction& code, SegmentKind kind, size_t index);
  void find_sources();

  const Program& program_;
  const Plan& plan_;
  Machine& machine_;
  ReferenceOptions options_;
  std::vector<Held> held_;
  std::vector<Write> writes_;
  std::vector<bool> host_writes_;
  std::set<TensorId> parameters_;  ///< trained parameters
  /// By constant: what it was made from when it was loaded, and what it is made from again.
  std::map<TensorId, std::set<TensorId>> loaded_from_, made_from_;
  std::set<std::string> cloned_;                                                ///< names of nodes that are recomputed
  std::map<std::pair<std::string, size_t>, std::vector<std::byte>> originals_;  ///< what they made in forward
  std::vector<std::pair<const Instruction*, std::vector<std::byte>>> exported_;
  std::set<std::string> rules_;  ///< kinds of nodes whose rule has been held
  int64_t clock_ = 0, segment_begin_ = 0, window_begin_ = 0;
};

}  // namespace galley
