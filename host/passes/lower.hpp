// Sequences become instructions: formats unpacked and packed, other memory classes staged, buffers taken over where that is legal, kernels bound.
#pragma once

#include <map>
#include <set>

#include "host/passes/compile.hpp"

namespace galley {

inline Operand with_access(Operand operand, uint32_t access) {
  operand.access = operand.later = access;
  return operand;
}

class Lowering {
 public:
  Lowering(const Graph& graph, std::span<const Strategy> strategies, const Provided& provided, const Target& target,
           const CompileOptions& options)
      : graph_(graph), strategies_(strategies), provided_(provided), target_(target), options_(options) {}

  /// Tensors of the whole run, in order of making.
  Status begin(int64_t micro_batches);
  Status load();
  Status sequence(SegmentKind kind, const Sequence& items);
  /// Writes of everything that is saved, each after the nodes that make its value.
  Status export_tensors();
  /// `t` must outlive its segment: it is read after the program has run.
  Status keep(galley_tensor t);
  /// A range of a tensor as program operand.
  Result<Operand> locate(galley_tensor t);
  TensorId add(ProgramTensor tensor);
  TensorId stored(galley_tensor t) const { return components_.at(t).front(); }
  const std::vector<TensorId>& components(galley_tensor t) const { return components_.at(t); }

  Program program;

 private:
  struct Slot {
    TensorId tensor;
    int64_t offset;
  };
  /// A kernel and the workspace it asked for; no kernel: why none serves.
  struct Choice {
    const galley_kernel* kernel = nullptr;
    int64_t workspace = 0;
    std::string refusals;
  };
  /// An input of a node whose numbers do not simply lie where kernels compute.
  struct Stored {
    size_t input;
    galley_tensor tensor;
    bool updated;                ///< in place
    std::vector<Operand> parts;  ///< its components in the computing class
  };
  std::string who(int use) const { return use == no_use ? "" : strategies_[static_cast<size_t>(use)].label; }
  Result<uint32_t> memory_of(const GraphTensor& t) const;
  bool plain(galley_tensor t) const;
  Result<Slot> slot(galley_tensor t);
  Result<Operand> operand(const Ref& ref, const galley_operand_rule* rule);
  Result<std::vector<Operand>> stage(galley_tensor t, bool read);
  Result<Operand> numbers_of(galley_tensor t, const std::vector<Operand>& parts, bool read);
  Result<Operand> read(galley_tensor t);
  Status pack(galley_tensor t, const Operand& value, const std::vector<Operand>& parts);
  Status put_back(galley_tensor t, const std::vector<Operand>& parts);
  Result<bool> as_stored(Instruction* instruction, const std::vector<Stored>& stored);
  Status copy(const Operand& from, const Operand& to);
  Status emit_op(const std::string& op, const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs, AttrList attrs);
  Status emit(const Item& item, size_t index, const std::map<galley_tensor, size_t>& last_use);
  const Choice& choose(const Instruction& instruction);
  Status bind(Instruction& instruction);
  void take(Instruction& instruction, const Choice& choice);
  Operand temporary(const std::string& name, uint32_t dtype, const Shape& shape, Owner owner, int use);
  Segment& code() { return program.segment(kind_); }

  const Graph& graph_;
  std::span<const Strategy> strategies_;
  const Provided& provided_;
  const Target& target_;
  const CompileOptions& options_;
  SegmentKind kind_ = SegmentKind::Load;
  std::map<galley_tensor, std::vector<TensorId>> components_;  // of what lives for the run or a window
  std::map<galley_tensor, TensorId> local_;                    // transients of the segment at hand
  std::set<galley_tensor> saved_;
  std::set<galley_tensor> outlives_;
  std::map<std::string, Choice> bound_;
  uint32_t events_ = 0;
};

}  // namespace galley
