// The graph of a run: tensors and nodes, in sections. Families, rewrites, gradient rules and updates all build it with the same verbs.
//
// Nodes of a section stand in execution order. A transient is written by one node, except gradients, which several nodes add to in order;
// parameters and states are updated in place by update nodes (operands with GALLEY_OPERAND_INOUT). Shapes are static.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "galley/galley.h"
#include "host/base/fill.hpp"
#include "host/base/result.hpp"
#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// Who makes a tensor or node: index into the recipe's strategies, or the model itself (and the host).
inline constexpr int no_use = -1;

/// How a tensor's first bytes are made.
struct Initial {
  std::string op;  ///< "": zeros
  std::vector<galley_tensor> inputs;
  AttrList attrs;
};

/// The file that a tensor's first bytes are read from.
struct SourceFile {
  std::string path;                  ///< a file or folder as tensor_files.hpp reads them; "": they are made
  std::string name;                  ///< in the file
  std::vector<std::string> aliases;  ///< other names that it may have there
  std::string hint;                  ///< the next step where the file has none of the names, or has several and they differ
  tensor_files::RowOrder order;      ///< in which the file has its rows
};

/// Where the model is saved, below the run's folder.
inline constexpr const char* kModelFile = "model/model.safetensors";

/// Where a parameter is saved: below the run's folder, by which name; "": with the model, by its own.
struct SavedAs {
  std::string file, name;
};

/// How a tensor's numbers lie in memory, by claims and casts. GraphTensor::dtype is what nodes read.
struct Storage {
  uint32_t kept_dtype = 0;            ///< a frozen parameter may be kept in 16 bit only: this is the dtype then; 0: it is kept in its own
  std::string format;                 ///< its name; "": plain
  AttrList attrs;                     ///< the format's options
  std::string placement;              ///< a memory class; "": where kernels compute
  std::string master_placement;       ///< of a parameter that only a copy in 16 bit is made of; until casts are known
  int placement_use = no_use;         ///< who claims that
  galley_tensor numbers_of = 0;       ///< of a view: the tensor whose numbers these are, in this one's dtype; it has no bytes of its own
  std::optional<uint32_t> component;  ///< of a view: of which component of that tensor's format
};

/// A range of another tensor (step scalars): bytes from its begin.
struct Slice {
  galley_tensor of = 0;
  int64_t offset = 0;
};

/// Whether tensors of this kind have their numbers from the start of a run on.
inline bool lasts(uint32_t kind) { return kind == GALLEY_KIND_PARAMETER || kind == GALLEY_KIND_STATE || kind == GALLEY_KIND_CONSTANT; }

struct GraphTensor {
  galley_tensor id = 0;
  std::string name;
  uint32_t dtype = GALLEY_F32;
  Shape shape;
  uint32_t kind = GALLEY_KIND_TRANSIENT;
  uint64_t flags = 0;
  galley_node producer = 0;  ///< the first node that writes it
  int use = no_use;
  galley_tensor parameter = 0;  ///< of a gradient, a state or a transient of an update: whose
  galley_tensor gradient = 0;   ///< of a parameter that is trained: its buffer
  int update_use = no_use;      ///< of a parameter that is trained: the strategy that updates it
  std::string update_text;      ///< what that one calls the update: "descend, *.bias"
  bool immediate = false;       ///< of a gradient: lives until its last contribution, where its parameter is updated
  int immediate_use = no_use;   ///< the strategy that wants it so
  bool unused = false;          ///< what it was made for is not part of this program
  Initial initial;
  SourceFile source;
  SavedAs saved;
  Storage storage;
  Slice slice;
  Fill fill = Fill::Tokens;  ///< of an input: what the data puts into it
  int64_t below = 0;         ///< of an input: its numbers are below this; 0: nobody has said

  int64_t count() const { return elements(shape); }
  int64_t bytes() const { return count() * galley_dtype_bytes(dtype); }
  bool parameter_kind() const { return kind == GALLEY_KIND_PARAMETER; }
  bool trainable() const { return flags & GALLEY_TENSOR_TRAINABLE; }
  /// Whether an update may write it: it is trained, or a node of a strategy changes it.
  bool changes() const { return flags & (GALLEY_TENSOR_TRAINABLE | GALLEY_TENSOR_WRITTEN); }
};

/// Evaluate has what strategies make of parameters and states for the model to be evaluated with, Load what they begin with.
enum class Section : uint8_t { Window, Forward, Backward, Update, Evaluate, Export, Sample, Load };
inline constexpr std::array<const char*, 8> section_names = {"window",   "forward", "backward", "update",
                                                             "evaluate", "export",  "sample",   "load"};

/// A choice of operands, by index; those after its end are not chosen.
using Mask = std::vector<bool>;
inline bool chosen(const Mask& mask, size_t i) { return i < mask.size() && mask[i]; }
inline void choose(Mask& mask, size_t i) {
  if (mask.size() <= i) mask.resize(i + 1);
  mask[i] = true;
}

/// In whose name tensors and nodes are made, and where they go.
struct Author {
  Section section = Section::Forward;
  int use = no_use;
  int64_t block = -1;
  galley_node origin = 0;
  std::string prefix = {};  ///< put before names that the graph makes itself
  uint32_t stage = 0;       ///< of an update
  size_t room = SIZE_MAX;   ///< tensors and nodes that the graph may have when this author is done
};

/// The dtypes in which a node computes, by claims.
struct Products {
  uint32_t dtype = 0;  ///< of its products; 0: nobody has claimed it
  bool tf32 = false;   ///< products of F32 may be made in TF32
  int use = no_use;    ///< who has claimed it
  int64_t weights = GALLEY_WEIGHTS_DERIVED;
};

struct GraphNode {
  galley_node id = 0;
  const galley_op* op = nullptr;
  std::string name;
  std::vector<galley_tensor> inputs;   ///< 0: an optional input that is absent
  std::vector<galley_tensor> outputs;  ///< 0: likewise
  std::vector<galley_tensor> given;    ///< the inputs before the host cast some of them; empty: it has cast none
  AttrList attrs;
  std::vector<const galley_attr*> attr_view;  ///< of `attrs`, for plugins; attributes never change once a node is made
  Mask accumulate;                            ///< of outputs: those that are added to
  int64_t block = -1;
  int use = no_use;
  Section section = Section::Forward;
  uint32_t stage = 0;      ///< of a node of an update: when a strategy made it
  galley_node origin = 0;  ///< of a backward node: the forward node it is the gradient of
  bool dropped = false;    ///< others have taken its place: it is in no section any more
  Products products;
};

/// "f32(2, 8)", for messages and dumps.
std::string type_text(const GraphTensor& tensor);

/// Finds an op by name; nullptr when no plugin provides it.
using OpLookup = std::function<const galley_op*(std::string_view)>;

/// A metric of the step.
struct Reported {
  galley_tensor tensor = 0;
  std::string name;
  int use = no_use;
};

/// A flag that ends the run: I32, one element, not 0 after the update.
struct Stop {
  galley_tensor tensor = 0;
  std::string cause, hint;
  int use = no_use;
  bool done = false;  ///< nothing has failed: it ends as after its last step
};

/// What stands for a parameter: when it is saved, or when the model is evaluated.
struct ExportedValue {
  galley_tensor parameter = 0;
  galley_tensor value = 0;
};

/// A tensor that is saved with the model under a name of its own.
struct ExportedTensor {
  std::string name;
  galley_tensor value = 0;
};

/// What a parameter or state, or a component of its format, begins with.
struct Beginning {
  galley_tensor value = 0;
  int use = no_use;
};

/// By tensor and component; where one is GALLEY_BEGIN_NUMBERS, there is no other.
using Beginnings = std::map<galley_tensor, std::map<uint32_t, Beginning>>;

/// A key of config.json; `json` is its value.
struct ConfigKey {
  std::string key, json;
  int use = no_use;
};

/// The block of step scalars.
struct ScalarBlock {
  galley_tensor tensor = 0;
  std::vector<ScalarSlot> slots;
  int64_t bytes = 0;
  int64_t host_bytes = 0;       ///< of them, the first: what the host writes
  int64_t scheduled_from = -1;  ///< in the block: the applied step that the first value of each schedule is for; -1: no option has one
};

/// What the host looks at after each step.
struct Signals {
  std::vector<Reported> reports;
  std::vector<Stop> stops;
};

/// What strategies say of the files that a run writes.
struct Exports {
  uint32_t model = GALLEY_EXPORT_BOTH;  ///< which parameters
  bool said = false;                    ///< a strategy has said so
  std::vector<ExportedValue> values;
  std::set<galley_tensor> in_format;  ///< these parameters are saved as the components of their formats
  std::vector<Document> documents;
  std::vector<ConfigKey> config;
  std::vector<ExportedTensor> tensors;  ///< beside the parameters

  /// What a strategy says of `model`: of several, who wants more of the model.
  void say(uint32_t what) {
    model = said ? std::max(model, what) : what;
    said = true;
  }
};

/// Tensors of the model that passes look for.
struct HeadMarks {
  galley_tensor logits = 0;    ///< marked by the family
  galley_tensor hidden = 0;    ///< likewise, the last hidden state: where the head begins
  galley_tensor position = 0;  ///< written by the host: the row to sample from
  galley_tensor output = 0;    ///< what `galley embed` shows; where the family marks none, `hidden`
};

/// What the graph is made for, as far as strategies see it.
struct RunOf {
  int64_t steps = 0;          ///< 0: by epochs
  int64_t micro_batches = 0;  ///< 0: not decided yet
  bool trains = false;
  std::optional<TargetView> target;
};

/// Of a micro-batch.
struct Extents {
  int64_t rows = 0;           ///< B
  int64_t length = 0;         ///< S
  int64_t target_length = 0;  ///< T; 0: there are no targets
};

class Graph {
 public:
  /// The shape of a micro-batch. `ops` lives as long as the graph.
  Graph(OpLookup ops, std::function<std::vector<std::string>()> op_names, const Extents& extents);

  Result<galley_tensor> make(GraphTensor tensor);
  /// Output shapes come from the op's rule; `outputs` as in galley_node_desc. Appended to the author's section.
  Result<galley_node> append(std::string_view op, std::string name, std::vector<galley_tensor> inputs, AttrList attrs,
                             std::vector<galley_tensor>* outputs, Mask accumulate = {});
  Result<galley_node> append(const galley_op* op, std::string name, std::vector<galley_tensor> inputs, AttrList attrs,
                             std::vector<galley_tensor>* outputs, Mask accumulate = {});
  /// Whether a node that a family or a plugin names may be called so: among forward nodes names are unique.
  Status check_node_name(const std::string& name) const;
  Status replace(galley_tensor from, galley_tensor to);
  /// The verb set_input: what a strategy wants a node to read.
  Status rewire(galley_node n, size_t input, galley_tensor to);
  /// Takes the nodes of a section away that nobody reads since `replace` and `rewire` have given their readers something else.
  void drop_unread(Section s);
  /// Whether forward nodes have read the tensor and none does any more.
  bool replaced(galley_tensor t) const;
  galley_tensor find(std::string_view name) const;
  Result<galley_tensor> scalar(uint32_t which);
  /// Room in the block of step scalars: the offset of so many bytes, and a tensor that is a part of it.
  int64_t reserve(int64_t bytes);
  Result<galley_tensor> in_block(const std::string& name, uint32_t dtype, int64_t count, int64_t offset);
  /// Room in the block for what the host says of each step, after what it says already: all that lies after moves on. Before placement.
  Result<galley_tensor> in_host_block(const std::string& name, uint32_t dtype, int64_t count);
  /// The scalar of an option of the strategy in charge, times a factor.
  Result<galley_tensor> option(const std::string& name, double factor = 1);
  /// The same for the learning rate of one parameter, which strategies may have scaled.
  Result<galley_tensor> rate(const std::string& name, galley_tensor parameter);
  /// Multiplies the learning rate of a parameter, before its update is built.
  Status scale_rate(galley_tensor parameter, double factor);
  /// Makes a tensor of one number a metric of the step.
  Status report(galley_tensor t, const std::string& name);
  /// The node after `n` in a section; the first for 0, 0 after the last.
  galley_node next_node(Section s, galley_node n) const;
  /// The number of a repeated block: its producer's, or of a parameter (a gradient's, a state's) its first reader's; -1: none.
  int64_t block_of(galley_tensor t);

  bool has(galley_tensor t) const { return t >= 1 && t <= tensors_.size(); }
  bool has_node(galley_node n) const { return n >= 1 && n <= nodes_.size(); }
  GraphTensor& tensor(galley_tensor t) { return tensors_[t - 1]; }
  const GraphTensor& tensor(galley_tensor t) const { return tensors_[t - 1]; }
  GraphNode& node(galley_node n) { return nodes_[n - 1]; }
  const GraphNode& node(galley_node n) const { return nodes_[n - 1]; }
  /// Null for 0.
  std::vector<const GraphTensor*> tensors(const std::vector<galley_tensor>& ids) const;
  size_t tensor_count() const { return tensors_.size(); }
  /// Changes an input; no other way, so that readers are known.
  void set_input(galley_node n, size_t input, galley_tensor t);
  size_t node_count() const { return nodes_.size(); }
  const std::vector<galley_node>& section(Section s) const { return sections_[static_cast<size_t>(s)]; }
  std::vector<galley_node>& section(Section s) { return sections_[static_cast<size_t>(s)]; }
  const galley_op* op(std::string_view name) const { return ops_(name); }
  /// Puts a section's nodes into an order in which producers come first, as close to the present order as that allows.
  void sort(Section s);

  /// The parameters that saving writes, by what strategies have said of it, and the file of each: its path below the run's folder.
  std::vector<galley_tensor> saved() const;
  /// What is saved in the place of a parameter: what `export_as` says, else what it is evaluated with.
  std::map<galley_tensor, galley_tensor> saved_values() const;
  std::string file_of(galley_tensor parameter) const;

  int64_t rows() const { return extents_.rows; }
  int64_t length() const { return extents_.length; }
  const Extents& extents() const { return extents_; }

  /// Sets the author for a scope.
  class As {
   public:
    As(Graph& graph, Author author) : graph_(graph), before_(std::exchange(graph.author, std::move(author))) {}
    ~As() { graph_.author = std::move(before_); }
    As(const As&) = delete;
    As& operator=(const As&) = delete;

   private:
    Graph& graph_;
    Author before_;
  };
  Author author;
  /// Makes the scalar of an option: set by the pass that knows the strategies.
  std::function<Result<ScalarSlot>(int use, const std::string& option)> option_slot;
  /// Describes a component of a tensor that is in a format: its shape and dtype. Likewise.
  std::function<Result<GraphTensor>(const GraphTensor& of, uint32_t index)> describe_component;
  /// Appends nodes that pack a value into the format of a tensor and unpack it again. Likewise.
  std::function<Result<galley_tensor>(galley_tensor of, galley_tensor value)> pack_and_unpack;

  RunOf run;
  HeadMarks marks;
  ScalarBlock scalars;
  Signals signals;
  Exports exports;
  std::vector<ExportedValue> evaluated;  ///< where the model is evaluated or saved, these stand for parameters
  Beginnings beginnings;
  std::string model_files;                    ///< the model's safetensors file or folder; "": it has none
  std::map<std::string, std::string> config;  ///< the model's config.json, as JSON text by key
  std::vector<std::string> ignored_files;     ///< patterns of tensors in the model's files that are not read
  std::optional<Error> refused;               ///< the last verb that was refused: whose fault it is when the plugin's call then fails

  /// What plugins are given: in every phase, and in each of them.
  static const galley_graph_reader* reader();
  static const galley_graph_verbs* verbs();
  static const galley_model_verbs* model_verbs();
  static const galley_load_verbs* load_verbs();
  static const galley_export_verbs* export_verbs();
  static const galley_update_verbs* update_verbs();
  galley_graph* handle() { return reinterpret_cast<galley_graph*>(this); }

 private:
  Result<galley_tensor> slot(ScalarSlot slot, const std::string& name);
  Status check_room() const;
  galley_tensor as_rate(galley_tensor option);
  galley_tensor updated_parameter(const std::vector<galley_tensor>& inputs) const;

  /// Who reads a tensor, and the order of nodes, as far as replace() needs it.
  struct Wiring {
    std::vector<std::vector<galley_node>> readers;  ///< by tensor less 1: the nodes that read it, and some that did once
    /// By node less 1: while strategies rewrite the model, no node has a lower number than one whose output it reads. What a rewrite makes
    /// shares the number of the last node that it reads, so that nothing after it has to move when it comes to be read there.
    std::vector<size_t> order;
  };
  size_t order_of(galley_tensor t) const;  ///< its producer's
  bool has_readers(galley_tensor t) const;
  bool is_marked(galley_tensor t) const;
  std::set<galley_node> makers_of(galley_tensor t, galley_node writer) const;
  void move_after(galley_node n, size_t order);
  void add_reader(galley_tensor t, galley_node n);
  void add_to_order(const GraphNode& node);

  struct Names {
    std::map<std::string, galley_tensor, std::less<>> tensors;
    std::set<std::string> forward_nodes;
    size_t made = 0;  ///< so many nodes: part of the names that the graph makes itself
  };
  struct Rates {
    std::map<galley_tensor, double> factors;
    std::set<galley_tensor> asked;  ///< parameters whose update has asked for its rate
  };
  /// The block of each tensor's first reader, in a forward section of so many nodes.
  struct Blocks {
    std::map<galley_tensor, int64_t> of;
    size_t nodes = 0;
  };

  OpLookup ops_;
  std::function<std::vector<std::string>()> op_names_;
  Extents extents_;
  std::deque<GraphTensor> tensors_;  // deques: pointers handed to plugins stay good
  std::deque<GraphNode> nodes_;
  std::array<std::vector<galley_node>, section_names.size()> sections_;
  Wiring wiring_;
  Names names_;
  Rates rates_;
  Blocks blocks_;
  mutable size_t next_ = 0;  // where next_node answered last
};

/// A node with its operands' descriptions, as ops see it; null: an operand that is absent. Owns what the view points to; the tensors must
/// not change meanwhile.
class NodeDescription {
 public:
  NodeDescription(const galley_op* op, const std::string& name, const std::vector<const GraphTensor*>& inputs, const AttrList& attrs,
                  const std::vector<const GraphTensor*>& outputs, const Mask& accumulate, int64_t length);
  NodeDescription(const NodeDescription&) = delete;
  NodeDescription& operator=(const NodeDescription&) = delete;
  const galley_node_view* view() const { return &view_; }

 private:
  std::deque<galley_operand> operands_;
  std::vector<const galley_operand*> inputs_, outputs_;
  std::vector<const galley_attr*> attrs_;
  galley_node_view view_ = {};
};

/// What an op's shape rule says of a node's outputs. What the rule refuses is exit code Recipe and the rule's own words: it may be a
/// configuration, and whoever asks knows better whose fault it is.
Result<std::vector<galley_shape>> infer_shapes(const galley_op* op, const galley_node_view* node);

/// What is wrong with a tensor as output `i` of a node, of which the op's shape rule has said `inferred`; or "".
std::string output_problem(const galley_op& op, size_t i, const galley_shape& inferred, const GraphTensor& tensor);

/// The rule of input `i`: the last one repeats when it is variadic; nullptr beyond.
const galley_operand_rule* input_rule(const galley_op* op, size_t i);
/// Whether the op updates input `i` in place.
bool updates_input(const galley_op* op, size_t i);
const galley_operand_rule* output_rule(const galley_op* op, size_t i);

/// What is wrong with a list of inputs of an op, or "".
std::string inputs_problem(const Graph& graph, const galley_op& op, const std::vector<galley_tensor>& inputs);

}  // namespace galley
