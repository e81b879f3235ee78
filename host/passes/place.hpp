// From items to instructions: where each tensor's bytes are, and what has to be done before and after a node that needs them elsewhere or
// otherwise.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/passes/copy.hpp"
#include "host/passes/passes.hpp"

namespace galley {

class Placer {
 public:
  explicit Placer(Compilation& c) : c_(c), graph_(c.graph), tensors_(c.graph, c.orders), program_(c.program) {}

  /// Tensors of the whole run, in order of making.
  Status begin(int64_t micro_batches);
  Status load();
  /// Makes again the constants that are made from what training changes.
  Status refresh(SegmentKind kind);
  Status items(SegmentKind kind, const std::vector<Item>& items, std::vector<uint32_t>* begins = nullptr);
  /// Whether there is a window part, and with it numbers that host and device exchange.
  bool steps() const { return !graph_.section(Section::Window).empty(); }
  /// Counts what micro adds to gradients that lie where nothing computes.
  void contributions(const std::vector<Item>& items);
  /// Tensors that items of the window part hand to micro or update.
  void window(const std::vector<Item>& items, const std::vector<const std::vector<Item>*>& readers);
  void take_image(SegmentKind kind);
  /// Behind what is there of the segment at hand: the block goes where the host can read it.
  void read_back(SegmentKind kind);
  /// A number of the block, there.
  Operand in_readback(galley_tensor t) const;
  /// Adds the segments that make the checksums of frozen and of trained weights.
  Status checksums();
  /// Writes of everything that is saved, each after the nodes that make its value.
  Status export_tensors();
  /// `t` must outlive its segment: it is read after the program has run.
  void keep(galley_tensor t) { outlives_.insert(t); }
  /// A range of a tensor as program operand.
  Result<Operand> locate(galley_tensor t) { return operand({t, 0, -1}, nullptr); }
  /// The tensor that a graph tensor's numbers lie in; of one in a format, that of the first component.
  TensorId home(galley_tensor t) const { return components_.at(t).front(); }
  const std::vector<TensorId>& components(galley_tensor t) const { return components_.at(t); }
  /// Of the segment placed last: the transients' tensors, by graph tensor.
  std::vector<TensorId> transients() const;

 private:
  struct Slot {
    TensorId tensor;
    int64_t offset;
  };
  /// Which of a tensor's numbers: all, or those that one piece of an update is about, as rows or as a list.
  struct Range {
    int64_t first = 0, count = -1;  ///< −1: all
    bool rows = false;

    bool all() const { return count < 0; }
    Shape shape(const Shape& whole) const;
    int64_t first_row(const Shape& whole) const;  ///< of a list: the first number
  };
  /// How an update is split; 0 numbers: it is not.
  struct Pieces {
    int64_t numbers = 0, all = 0;
    bool rows = false;
  };
  struct Component {
    ProgramTensor tensor;
    int64_t numbers;  ///< that one element stands for
  };
  /// An input of a node whose numbers do not simply lie where kernels compute.
  struct StagedInput {
    size_t input;
    galley_tensor tensor;
    bool updated;  ///< in place
    Range range;
    std::vector<Operand> components;  ///< in the memory class that computes
  };
  TensorId add(ProgramTensor tensor);
  std::string who(int use) const { return label(c_.strategies, use); }
  Result<uint32_t> memory_of(const GraphTensor& t) const;
  Result<std::vector<Component>> components_of(const GraphTensor& t, const Shape& shape) const;
  galley_tensor base(galley_tensor t) const;  ///< of a view: whose numbers it has
  bool plain(galley_tensor t) const;
  bool unpacks(galley_tensor t) const;
  Slot slot(galley_tensor t);
  bool handed(galley_tensor t) const;  ///< from the window part to another one
  Result<Operand> operand(const Ref& ref, const galley_operand_rule* rule);
  Status inputs(const Item& item, const Range& range, Instruction* instruction, std::vector<StagedInput>* staged);
  Status outputs(const Item& item, const Range& range, Instruction* instruction);
  Status emit(const Item& item);
  Status emit(const Item& item, const Range& range, Instruction instruction);
  Status check_shapes(const galley_op* op, const std::string& name, const std::vector<Operand>& inputs, const std::vector<Operand>& outputs,
                      const AttrList& attrs) const;
  Status emit_op(const galley_op* op, const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs, AttrList attrs);
  Status emit_format_op(const GraphTensor& t, const char* op_name, const std::string& name, std::vector<Operand> from,
                        std::vector<Operand> to, AttrList attrs);
  Result<const galley_op*> op(const std::string& name, const std::string& needed_by) const;

  // place_files.cpp
  std::vector<ProgramTensor> component_tensors(galley_tensor t) const;
  std::string suffix(galley_tensor t, size_t component) const;
  void read_file(const GraphTensor& t, const std::string& suffix, const Operand& to);
  Status initialize(galley_tensor t, const Operand& value);
  /// What is saved: by file and name in it.
  using SavedNames = std::map<std::pair<std::string, std::string>, galley_tensor>;
  Status check_files(const SavedNames& saved) const;
  uint32_t kept_dtype(galley_tensor t) const;
  uint32_t file_dtype(const std::vector<galley_tensor>& saved) const;
  Result<Operand> exported(galley_tensor t, const std::map<galley_tensor, galley_tensor>& values, std::set<galley_node>* done);

  // stream.cpp: updates in pieces.
  Result<Pieces> pieces_of(const Item& item) const;
  Result<bool> splits(galley_tensor t, int64_t numbers, bool rows) const;
  static Range range_for(const galley_operand_rule* rule, const Range& range);
  static Operand range_of(Operand operand, const Range& range);

  // gradients.cpp: those that lie where nothing computes.
  Result<Operand> gradient_here(galley_tensor t, const Range& range, bool adds);
  Status put_gradient_back(galley_tensor t, const Range& range, const Operand& here);

  // stage.cpp: memory classes and formats.
  Result<std::vector<Operand>> homes(galley_tensor t, const Range& range) const;
  Result<std::vector<Operand>> stage(galley_tensor t, const Range& range, bool read);
  Result<Operand> numbers_of(galley_tensor t, const Range& range, const std::vector<Operand>& components, bool read);
  Result<Operand> read(galley_tensor t);
  Status pack(galley_tensor t, const Range& range, const Operand& value, const std::vector<Operand>& components);
  Status put_back(galley_tensor t, const Range& range, const std::vector<Operand>& components);
  bool in_format(const StagedInput& input) const;
  Instruction with_formats(const Instruction& instruction, const std::vector<StagedInput>& staged, uint32_t kept) const;
  Result<std::vector<bool>> keep_formats(Instruction* instruction, const std::vector<StagedInput>& staged);
  enum class When : uint8_t { Always, LaterMicroBatches };
  void copy(const Operand& from, const Operand& to, When when = When::Always);
  Operand temporary(const std::string& name, uint32_t dtype, const Shape& shape, int use);
  Operand all_of(TensorId id) const { return galley::all_of(program_.tensors, id); }

  std::vector<Instruction>& code() { return program_.segment(kind_).code; }

  Compilation& c_;
  const Graph& graph_;
  const Tensors tensors_;
  Program& program_;
  SegmentKind kind_ = SegmentKind::Load;
  std::map<galley_tensor, std::vector<TensorId>> components_;  // of what lives for the run or a window
  std::map<galley_tensor, TensorId> local_;                    // transients of the segment at hand
  std::map<galley_tensor, TensorId> accumulators_;             // where micro adds up gradients that lie elsewhere
  std::map<galley_tensor, size_t> contributions_;              // to them that are still to come
  std::set<galley_tensor> outlives_;
  uint32_t events_ = 0;
};

}  // namespace galley
