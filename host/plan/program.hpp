// The program of a run: flat lists of instructions over tensors of known size. Passes make it, the planner gives every tensor an offset,
// and the executor walks its segments. Nothing here runs or allocates.
//
// A run is: load · for each step { window · micro for each micro-batch · update } with eval between steps · export at the end. `refresh`
// runs after parameters have come from a resume state, and makes again what is derived from them. `frozen` and `trained` make checksums of
// weights for the proof of training, between steps.
//
// A window's micro-batches are shared out over lanes: micro-batch m is of lane m mod `lanes`. Sums over a window are made lane by lane, and
// the sums of lanes are added in their order, so that they do not depend on which process has which lanes. A process takes its lanes one
// after the other, and a lane's micro-batches one after the other. `micro` is one list: an instruction that not all micro-batches run
// says so (When), and if an operand is written by the first of a lane and added to by later ones, its `later` access says so.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "galley/galley.h"
#include "host/base/fill.hpp"
#include "host/base/result.hpp"
#include "host/base/schedule.hpp"
#include "host/base/tensor_files.hpp"

namespace galley {

using TensorId = int32_t;
inline constexpr TensorId no_tensor = -1;

using Shape = std::vector<int64_t>;
int64_t elements(const Shape& shape);
/// Returns "f32".
std::string dtype_text(uint32_t dtype);
/// Returns the dtype called "f32", "bf16" or "f16", in which numbers may be computed or kept; 0 for any other name.
uint32_t dtype_named(const std::string& name);
/// Returns "(2,8)".
std::string shape_text(const Shape& shape);
/// Rounds up to the next multiple of the alignment.
inline int64_t round_up(int64_t bytes, int64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

/// The purposes for which bytes are used: the owners of `plan --json`.
enum class Owner : uint8_t { Weights, Gradients, States, Saved, Activations, Workspace, Data, Caches };
inline constexpr std::array<const char*, 8> owner_names = {"weights",     "gradients", "states", "saved",
                                                           "activations", "workspace", "data",   "caches"};

/// The time for which a tensor keeps its bytes.
enum class Life : uint8_t {
  Run,      ///< the whole run: weights, states, constants, step scalars, inputs, the loader's buffers
  Window,   ///< from its first write in `micro` (from micro's begin when there are several micro-batches) to its last reader in `update`
  Segment,  ///< from its first to its last use within one segment
  Texts     ///< from the begin of `caches` to the end of `next`: what is kept while texts are generated
};

/// How the elements of a part lie in its whole tensor: `run` of them together, from `first` on, and each run `step` after the one before.
struct Runs {
  int64_t first = 0;
  int64_t run = 0;  ///< 0: all of them
  int64_t step = 0;

  /// Returns where element i of the part is.
  int64_t at(int64_t i) const { return run ? first + i / run * step + i % run : first + i; }
  /// Returns how many of `count` elements lie together from element i on.
  int64_t together(int64_t i, int64_t count) const { return run ? std::min(run - i % run, count) : count; }
};

struct ProgramTensor {
  std::string name;
  uint32_t dtype = GALLEY_F32;
  Shape shape;
  int64_t bytes = 0;
  uint32_t memory = 0;  ///< index into Target::memories
  Owner owner = Owner::Activations;
  Life life = Life::Segment;
  std::string strategy;     ///< whose tensor it is: "NAME (recipe.lua:9)", or "" for the model's own
  Shape whole = {};         ///< the shape of the tensor of which this is the part that this process has; empty: it is no part
  Runs runs = {};           ///< where the part's elements are in the whole
  bool neighbours = false;  ///< of a part: the others are those of Program::together neighbours

  bool is_part() const { return !whole.empty(); }
};

/// Named constants of an instruction. Owns their values; kernels see `view`.
class AttrList {
 public:
  void set(const std::string& name, int64_t value);
  void set(const std::string& name, double value);
  void set(const std::string& name, const std::string& value);
  void set(const std::string& name, std::vector<double> values);
  void set(const std::string& name, std::vector<int64_t> values);
  void set(const galley_attr& attr);  ///< copies
  /// Copies the attributes that a plugin gives; a name, type or value that makes no sense is exit code Plugin.
  Status add(const galley_attr* const* attrs, uint32_t n);
  const galley_attr* find(const std::string& name) const;
  /// Returns an attribute that is one integer; `otherwise` where there is none of the name.
  int64_t integer(const std::string& name, int64_t otherwise) const;
  std::vector<const galley_attr*> view() const;  ///< valid while the list lives and is not changed
  bool empty() const { return items_.empty(); }
  /// Returns names, types and values as one string, equal for equal lists.
  std::string key() const;

 private:
  struct Item {
    std::string name;
    std::vector<int64_t> integers;
    std::vector<double> numbers;
    std::string text;
    galley_attr attr = {};
  };
  std::vector<std::shared_ptr<const Item>> items_;  // shared: clones of an instruction carry the same constants
  void put(std::shared_ptr<Item> item);
};

/// The format of an operand. Its components are `count` inputs of the instruction from `first` on, in the format's order.
struct OperandFormat {
  std::string name;
  AttrList attrs;                        ///< the format's options
  std::vector<const galley_attr*> view;  ///< shows them to plugins
  const galley_codec* codec = nullptr;   ///< for the program's device; null: there is none
  size_t first = 0, count = 0;
};

/// An operand of an instruction: a dense range of a tensor, all of it or a chunk of its rows.
struct Operand {
  TensorId tensor = no_tensor;  ///< no_tensor: an optional operand that is absent
  int64_t offset = 0;           ///< bytes from the tensor's begin
  Shape shape;
  uint32_t dtype = GALLEY_F32;
  uint32_t access = GALLEY_READ;
  uint32_t later = GALLEY_READ;  ///< access in the second and later micro-batches of a lane; see MicroPlace::later()
  /// If not null, the kernel reads the operand in this format: shape and dtype are those of the numbers, and the bytes are further inputs.
  /// If null, the operand's bytes are its numbers.
  std::shared_ptr<const OperandFormat> format;
  /// > 0: the number of an operand between two links of the chain that the instruction is. If it is an input, an earlier link makes it.
  /// Without a tensor it has no memory, because nothing else reads it.
  uint32_t inner = 0;
  /// The tensor before outputs took over inputs' bytes (alias): a reader expects what was written under this id. no_tensor: not known.
  TensorId value = no_tensor;
  bool present() const { return tensor != no_tensor; }
  /// Returns whether the operand is there: in memory, in a format, or between the links of a chain.
  bool given() const { return present() || format || inner; }
  int64_t bytes() const { return elements(shape) * galley_dtype_bytes(dtype); }
  /// Return whether it is read, or written, in any micro-batch.
  bool reads() const { return ((access | later) & GALLEY_READ) != 0; }
  bool writes() const { return ((access | later) & GALLEY_WRITE) != 0; }
};

/// Returns what a plugin sees of an operand. If the operand has a format, the caller adds its components.
galley_operand operand_view(const Operand& operand, const char* name, void* data, uint32_t access);

/// Operands of an instruction: `count` of its inputs, or of its outputs, from `first` on.
struct OperandRange {
  size_t first = 0, count = 0;
};

/// A node that a launch computes.
struct LaunchNode {
  std::string name;  ///< its stable name
  const galley_op* op = nullptr;
  AttrList attrs = {};
  uint64_t flags = 0;  ///< GALLEY_NODE_TRAINING
  int64_t first_row = 0;
  int64_t block = -1;                      ///< one of the model's repeated blocks; -1: none
  OperandRange inputs = {}, outputs = {};  ///< its own among the instruction's, after those of the nodes before it
};

/// Runs a kernel on the operands. The last inputs, which no node has, are components of operands in formats.
struct Launch {
  /// Never empty: one node, or those of a group or a chain, chain by chain, each of `links` nodes.
  std::vector<LaunchNode> nodes = std::vector<LaunchNode>(1);
  size_t links = 1;
  const galley_kernel* kernel = nullptr;
  bool capturable = true;  ///< the device can capture its work and replay it
  bool varies = false;     ///< its bytes may differ from run to run
  bool on_host = false;    ///< in load: the host runs it, by a kernel for "cpu", once the device has done all before
  int64_t priority = 0;    ///< the priority of the kernel's answer to `query`
  TensorId workspace = no_tensor;
  TensorId constants = no_tensor;  ///< live for the whole run; the kernel's `prepare` fills them
  double flops = 0;
  double link_bytes = 0;                                    ///< of an exchange: that this process sends to others
  const galley_op* op() const { return nodes.front().op; }  ///< of the first node
};

/// Copies inputs[0] to outputs[0] in another memory class, on `queue`; is over when `event` has been waited for.
struct Copy {};
/// Records in `event` everything put on `queue` so far.
struct Record {};
/// Lets later work on `queue` come after `event`.
struct Wait {};

/// In load: reads outputs[0] from a file; converts it to the operand's dtype through the program's staging, outputs[1].
struct Read {
  std::string file;                  ///< absolute path as tensor_files.hpp reads it
  std::string entry;                 ///< the name in that file
  std::vector<std::string> aliases;  ///< other names of the same tensor in that file
  std::string hint;                  ///< what a user can do if the file has none of the names, or has several and they differ
  tensor_files::FileForm form;       ///< what the file has otherwise
  int64_t added_rows = 0;            ///< after those of the file; each is their mean
  Shape whole = {};                  ///< if it reads a part of a tensor: the tensor's shape; else empty
  Runs runs = {};                    ///< the part's
};

/// In export: writes inputs[0] to a file; inputs[1], if any, is its value before training.
struct Write {
  std::string file;    ///< path below the run directory
  std::string entry;   ///< the name in that file
  uint32_t dtype = 0;  ///< the dtype in the file, to which the operand's numbers are rounded
};

/// The alternatives of Instruction::what, in their order.
enum class Action : uint8_t { Launch, Copy, Record, Wait, Read, Write };
inline constexpr std::array<const char*, 6> action_names = {"kernel", "copy", "record", "wait", "read", "write"};

/// How the micro-batches of a window are shared out.
struct Lanes {
  int64_t lanes = 0;      ///< 0: as many as groups
  int64_t ranks = 1;      ///< processes of the run
  int64_t rank = 0;       ///< this one
  int64_t together = 1;   ///< so many neighbours are a group, which computes the same micro-batches; divides `ranks`
  std::string axis = {};  ///< their axis; "": the recipe names none

  int64_t groups() const { return ranks / together; }
};

/// The micro-batches of a window that run an instruction of micro.
enum class When : uint8_t {
  Always,
  LaneGoesOn,    ///< all but the first of a lane
  LaneStays,     ///< all but the last of a lane
  LaneEnds,      ///< the last of a lane
  LaterLaneEnds  ///< the last of each of the process's lanes but the first
};
inline constexpr std::array<const char*, 5> when_names = {"always", "the lane goes on", "the lane stays", "the lane ends",
                                                          "a later lane ends"};

/// The place of a micro-batch in the window. What is no micro-batch has the default.
struct MicroPlace {
  bool begins = true;      ///< the first of its lane
  bool ends = true;        ///< the last of its lane
  bool first_lane = true;  ///< of the process's lanes it is in the first

  bool runs(When when) const {
    switch (when) {
      case When::LaneGoesOn: return !begins;
      case When::LaneStays: return !ends;
      case When::LaneEnds: return ends;
      case When::LaterLaneEnds: return ends && !first_lane;
      default: return true;
    }
  }
  /// Returns whether operands have their `later` access: a lane's sums add to what its first micro-batch has written, and the window's to
  /// what the first lane has.
  bool later(When when) const { return when == When::LaneEnds ? !first_lane : !begins; }
};

/// Processes of a run that exchange with each other: `ranks` of them, their numbers `stride` apart.
struct AlongAxis {
  int64_t ranks = 1, stride = 1;
  int64_t span() const { return (ranks - 1) * stride + 1; }
  /// Returns the place of a process among its own.
  int64_t place(int64_t rank) const { return rank / stride % ranks; }
  /// Returns the process at a place of the same axis.
  int64_t member(int64_t rank, int64_t at) const { return rank + (at - place(rank)) * stride; }
};

struct Instruction {
  std::variant<Launch, Copy, Record, Wait, Read, Write> what;
  std::string name;      ///< the node's stable name, or what is done: "read wte"
  std::string strategy;  ///< whose node it is: "NAME (recipe.lua:9)"; "": the model's own, or the host's
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;  ///< an operand that is updated in place is among the inputs, with READ_WRITE
  uint32_t queue = 0;
  /// Record, Wait, a copy, an exchange on a queue of its own: numbered from 1; 0: none. Is recorded also where `when` leaves these two out.
  uint32_t event = 0;
  When when = When::Always;
  bool recomputed = false;  ///< a clone that runs forward again for backward
  bool rounded = false;     ///< a clone of what has read a compressed tensor: it makes other numbers than forward did

  Action action() const { return static_cast<Action>(what.index()); }
  /// Return what the instruction is; null: it is something else.
  Launch* launch() { return std::get_if<Launch>(&what); }
  const Launch* launch() const { return std::get_if<Launch>(&what); }
  const Read* read() const { return std::get_if<Read>(&what); }
  const Write* write() const { return std::get_if<Write>(&what); }
  /// Returns whether its event is recorded after it.
  bool records() const { return event != 0 && (action() == Action::Copy || action() == Action::Launch); }
  /// Returns whether it computes with other processes. Such a launch is never joined with others.
  bool exchanges() const;
  /// Return what a launch has besides operands; no_tensor: nothing.
  TensorId workspace() const { return launch() ? launch()->workspace : no_tensor; }
  TensorId constants() const { return launch() ? launch()->constants : no_tensor; }
  /// Return the operands of one of its nodes.
  std::span<const Operand> inputs_of(const LaunchNode& node) const {
    return std::span(inputs).subspan(node.inputs.first, node.inputs.count);
  }
  std::span<const Operand> outputs_of(const LaunchNode& node) const {
    return std::span(outputs).subspan(node.outputs.first, node.outputs.count);
  }
};

/// Returns who takes part in an exchange.
AlongAxis along_axis(const Instruction& exchange);

/// Returns the launch of one node that has all of the operands. It lacks a kernel.
Instruction launch_of(LaunchNode node, std::vector<Operand> inputs, std::vector<Operand> outputs);
/// Returns what a plugin sees of a node with these operands and attributes, which must outlive it.
galley_node_view node_view(const LaunchNode& node, int64_t length, std::span<const galley_operand* const> inputs,
                           std::span<const galley_operand* const> outputs, std::span<const galley_attr* const> attrs);
/// Returns "rms_norm", or "add>rms_norm" for a chain.
std::string op_text(const Launch& launch);
/// Returns for each output the input that it may take over by the ops' rules, through links of a chain that have no memory; -1: none.
std::vector<int64_t> taken_inputs(const Instruction& instruction);

enum class SegmentKind : uint8_t { Load, Refresh, Frozen, Trained, Window, Micro, Update, Eval, Caches, Sample, Next, Export };
inline constexpr std::array<const char*, 12> segment_names = {"load",   "refresh", "frozen", "trained", "window", "micro",
                                                              "update", "eval",    "caches", "sample",  "next",   "export"};
/// Returns whether a segment runs the model by itself, on what the host has written.
inline constexpr bool infers(SegmentKind kind) {
  return kind == SegmentKind::Eval || kind == SegmentKind::Sample || kind == SegmentKind::Next;
}
inline constexpr size_t segment_count = segment_names.size();

struct Segment {
  SegmentKind kind = SegmentKind::Load;
  std::vector<Instruction> code;
  /// Returns whether other processes take part in it.
  bool exchanges() const;
};

/// A scalar in the block of step scalars, a tensor of Life::Run. The host writes the first ones (`step_image`).
struct ScalarSlot {
  uint32_t which = 0;  ///< GALLEY_SCALAR_…, or 0 for an option
  int64_t offset = 0;  ///< byte offset in the block
  int64_t bytes = 0;
  uint32_t dtype = GALLEY_F32;
  std::string option;       ///< "NAME.lr"
  std::string tensor_name;  ///< the name of the graph's tensor
  size_t use = 0;           ///< index of the recipe's strategy, for an option
  Schedule schedule;        ///< an option's values by applied step (a constant has one entry)
  int64_t values = -1;      ///< offset in the block at which the host writes the values of the next applied steps, F64
  double factor = 1;        ///< multiplies them
  bool rate = false;        ///< a strategy has asked for it as a learning rate
};

/// A trainable tensor, for the proof of training and for the command `gradients`.
struct Trained {
  std::string name;
  TensorId parameter = no_tensor;  ///< the tensor that updates write (its first component if it is in a format)
  TensorId gradient = no_tensor;
  Operand sum_squares;  ///< in the readback, F64, one element: the sum of its gradient's squares before clipping, with the loss scale
  uint64_t flags = 0;   ///< GALLEY_TENSOR_ZERO_GRADIENT, GALLEY_TENSOR_LATE_GRADIENT
  int64_t count = 0;
  std::string updated_by = {};  ///< "descend, *.bias (recipe.lua:9)"; "": nothing is updated
};

/// A parameter that is saved apart from the model, in an adapter's file.
struct Apart {
  std::string name, file;
  std::string made_by;  ///< "adapt (recipe.lua:9)"
  int64_t count = 0, bytes = 0;
};

/// The tensors that lie in memory in one format, with the same options.
struct InFormat {
  std::string format;  ///< "four-bit, block = 64, type = nf4"
  int64_t tensors = 0, count = 0, bytes = 0;
};

/// A text file that export writes beside the tensors.
struct Document {
  std::string file;  ///< path below the run directory
  std::string text;
  int use = -1;  ///< the recipe's strategy that writes it; -1: the model
};

/// A number that a strategy reports of a step: F32 or F64, one element of the readback.
struct Metric {
  std::string name;
  Operand value;
};

/// A number of the readback (I32, one element) that ends the run when it is not 0.
struct StopFlag {
  Operand value;
  std::string strategy, cause, hint;
  bool done = false;  ///< the run ends as after its last step, not with an error
};

struct Program {
  std::vector<ProgramTensor> tensors;
  std::array<Segment, segment_count> segments;  ///< indexed by SegmentKind; a segment that does not occur is empty
  int64_t rows = 0;                             ///< B
  int64_t length = 0;                           ///< S
  int64_t target_length = 0;                    ///< T; 0: there are no targets
  int64_t head_rows = 0;                        ///< the most rows of a chunk of the head and loss: sums depend on it; 0: there is no head
  int64_t micro_batches = 1;                    ///< micro-batches of a window, of all processes
  int64_t lanes = 1;                            ///< shares of a window's micro-batches; at most as many as these
  int64_t ranks = 1;                            ///< processes of the run
  int64_t rank = 0;                             ///< this one
  int64_t together = 1;            ///< neighbours 0 … n − 1, n … 2 n − 1, … compute the same micro-batches; divides `ranks`
  std::string together_axis = {};  ///< their axis; "": each process is a group
  /// Along the axis of groups, neighbours divide tensors among them, 0 … n − 1, n … 2 n − 1, …, and have all parts. 0: nothing is divided.
  int64_t sharers = 0;
  std::string sharers_axis = {};  ///< their axis
  /// > 0: a window has the number of micro-batches that comes closest to so many tokens that count, micro_batches at most.
  int64_t window_tokens = 0;

  /// Groups of processes that compute the same micro-batches. Their number divides `lanes`; group g has the lanes g, g + groups, …
  int64_t groups() const { return ranks / together; }
  int64_t group() const { return rank / together; }
  /// Returns this process's place in its group.
  int64_t place() const { return rank % together; }
  /// Returns whether several processes have the same part of what is divided among sharers.
  bool repeats_parts() const { return sharers > 0 && sharers < groups(); }
  /// Returns whether the own part of a tensor counts: other processes have the same one.
  bool counts(const ProgramTensor& part) const {
    if (part.neighbours) return group() == 0;
    return place() == 0 && (sharers == 0 || group() < sharers);
  }

  TensorId scalars = no_tensor;
  TensorId step_image = no_tensor;  ///< in the host's reach: what the host alone knows of a step, which becomes the block's first bytes
  TensorId readback = no_tensor;    ///< in the host's reach: the block as it was at the end of update, eval or micro
  std::vector<ScalarSlot> slots;
  int64_t scheduled_from = -1;   ///< offset in the block, I64: the applied step of the first of ScalarSlot::values; -1: there are none
  int64_t scheduled_values = 0;  ///< how many values the host gives: applied steps that a step can be while others are under way
  /// An input of a micro-batch, which the loader fills: I32, Life::Run.
  struct Input {
    std::string name;
    TensorId tensor = no_tensor;
    Fill fill = Fill::Tokens;
  };
  std::vector<Input> inputs;
  TensorId window = no_tensor;           ///< the loader's two window buffers, U8
  TensorId corpus = no_tensor;           ///< data that the source keeps in memory, U8; no_tensor if it keeps nothing
  TensorId staging = no_tensor;          ///< a buffer for Read and Write, U8
  TensorId logits = no_tensor;           ///< the logits if they are asked for (gradients --logits), else no_tensor
  Shape logits_shape;                    ///< (B, S, V), or as the model has it
  TensorId scores = no_tensor;           ///< (B, C), (B, S, C): the logits of models with labels, after the segment Eval
  Operand hits;                          ///< in the readback, F64, one element: how many labels Eval predicts; absent: it does not count
  TensorId sample_logits = no_tensor;    ///< (B, V): logits of one position a row, in the segment Sample; or (B, S, C): hidden states
  TensorId sample_position = no_tensor;  ///< I32 (B): the positions to sample from, counted in the micro-batch; no_tensor: all
  /// Generation with caches of keys and values: Sample takes the next positions of each row at once, or the source; Next takes one position.
  /// In a program that does more than that, Caches comes before it each time, and what `inputs` are of Sample is the source.
  struct Cached {
    int64_t positions = 0;        ///< that Sample takes; 0: there is a source, or no cache
    TensorId start = no_tensor;   ///< I32 (B): the position of the first token that a row is given; no_tensor: there are no caches
    std::vector<Input> prompt;    ///< the inputs of Sample, besides those of a source, which are among `inputs`
    std::vector<Input> next;      ///< the inputs of Next
    TensorId logits = no_tensor;  ///< (B, V): of Next
  } cached;
  std::string uncached;  ///< says why there are no caches where they were asked for; "": nothing forbids them

  std::vector<Trained> trained;
  /// The tensors of a resume state: every trainable parameter and every state, with its stable name.
  std::vector<std::pair<std::string, TensorId>> resume;
  /// Frozen parameters: every byte stays as loaded.
  std::vector<TensorId> frozen;
  /// How many numbers of its parameter each of `frozen` stands for. In a format, the first component stands for all, the others for none.
  std::vector<int64_t> frozen_numbers;
  /// Parameters that strategies save beside the model, trained or not.
  std::vector<Apart> apart;
  std::vector<InFormat> in_formats;  ///< frozen parameters in formats, in the order of their first tensors
  /// Checksums: a row, I32 (2), for each of `frozen`, then for each of `trained`. The segments Frozen and Trained make those of tensors
  /// where kernels compute; the host makes the others.
  TensorId checksums = no_tensor;
  static constexpr int64_t checksum_bytes = 8;
  /// A tensor of the model that the program does not need, with the names that it may have in a file.
  struct Unread {
    std::string file;
    std::vector<std::string> names;
  };
  std::vector<Unread> unread;
  std::vector<Document> documents;
  std::vector<Metric> metrics;
  std::vector<StopFlag> stops;
  struct Chosen {
    std::string op, kernel, plugin;
    auto operator<=>(const Chosen&) const = default;
  };
  /// Parameters of which a strategy claims parts for the processes, and that each has whole; and why.
  std::vector<std::pair<std::string, std::string>> whole;
  std::vector<Chosen> kernels;  ///< the kernels that the program runs, by op and name, each once

  int64_t parameters = 0;  ///< elements of all parameters, a tied tensor once
  int64_t trainable = 0;
  int64_t vocabulary = 0;       ///< ids of tokens are below this
  double flops_per_token = 0;   ///< forward and backward as executed, recomputation included
  double recomputed_flops = 0;  ///< the FLOPs of clones, per micro-batch

  /// Returns how many micro-batches each lane has in a window of so many: padding fills the last up.
  int64_t in_a_lane(int64_t all) const { return (all + lanes - 1) / lanes; }
  /// Returns how many micro-batches of the largest window this process runs, or how many of them run an instruction.
  int64_t own_micro_batches(When when = When::Always) const {
    const int64_t own = lanes / groups(), each = in_a_lane(micro_batches);
    switch (when) {
      case When::LaneGoesOn:
      case When::LaneStays: return own * (each - 1);
      case When::LaneEnds: return own;
      case When::LaterLaneEnds: return own - 1;
      default: return own * each;
    }
  }
  /// Calls run(micro_batch, MicroPlace) for each micro-batch of a window of so many that this process runs, in their order; an error ends
  /// it. Those from `all` on are padding.
  template <class Run>
  Status each_micro_batch(int64_t all, const Run& run) const {
    const int64_t each = in_a_lane(all);
    for (int64_t lane = group(); lane < lanes; lane += groups())
      for (int64_t i = 0; i < each; ++i) TRY_STATUS(run(lane + i * lanes, MicroPlace{i == 0, i + 1 == each, lane == group()}));
    return ok();
  }

  /// Returns the tensors that the host writes before a segment runs, but for the loader's window.
  std::vector<TensorId> written_by_host(SegmentKind kind) const;

  const Segment& segment(SegmentKind kind) const { return segments[static_cast<size_t>(kind)]; }
  Segment& segment(SegmentKind kind) { return segments[static_cast<size_t>(kind)]; }
};

}  // namespace galley
