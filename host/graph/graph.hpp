// The graph of a run: tensors and nodes, in sections. Families, rewrites, gradient rules and updates build it; draft.hpp has what they note
// beside it.
//
// The nodes of a section are in execution order. One node writes a transient, except that several nodes add to a gradient, in order. Update
// nodes update parameters and states in place (operands with GALLEY_OPERAND_INOUT). Shapes are static.
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

namespace galley {

/// A `use` is an index into the recipe's strategies and says who makes a tensor or node. This value is for the model and the host.
inline constexpr int no_use = -1;

/// The op that makes a tensor's first bytes.
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
  std::string hint;                  ///< what a user can do if the file has none of the names, or has several and they differ
  tensor_files::FileForm form;       ///< what the file has otherwise
  int64_t added_rows = 0;            ///< after those of the file; each is their mean
};

/// Where the model is saved, below the run's folder.
inline constexpr const char* kModelFile = "model/model.safetensors";

/// The file below the run's folder in which a parameter is saved, and its name there. "": the model's file, and its own name.
struct SavedAs {
  std::string file, name;
  std::string path() const { return file.empty() ? kModelFile : file; }
};

/// Describes how a tensor's numbers lie in memory, as claims and casts have decided. Nodes read them as GraphTensor::dtype.
struct Storage {
  uint32_t kept_dtype = 0;            ///< the 16-bit dtype of a frozen parameter that is kept in no other; 0: it is kept in its own
  std::string format;                 ///< its name; "": plain
  AttrList attrs;                     ///< the format's options
  std::string placement;              ///< a memory class; "": where kernels compute
  std::string master_placement;       ///< the class of a parameter that nodes read through its 16-bit copy only; until casts are known
  int placement_use = no_use;         ///< who claims that
  int64_t shard = GALLEY_SHARD_NO;    ///< what is claimed of its parts; the pass `shard` decides
  galley_tensor numbers_of = 0;       ///< a view has no bytes of its own: this tensor's numbers in the view's dtype; 0: it is no view
  std::optional<uint32_t> component;  ///< a view may be of one component of that tensor's format
};

/// Places a tensor in a range of another one, the step scalars: bytes from its begin.
struct Slice {
  galley_tensor of = 0;
  int64_t offset = 0;
};

/// Returns whether tensors of this kind have numbers from the start of a run on.
inline bool lasts(uint32_t kind) {
  return kind == GALLEY_KIND_PARAMETER || kind == GALLEY_KIND_STATE || kind == GALLEY_KIND_CONSTANT || kind == GALLEY_KIND_CACHE;
}

struct GraphTensor {
  galley_tensor id = 0;
  std::string name;
  uint32_t dtype = GALLEY_F32;
  Shape shape;
  uint32_t kind = GALLEY_KIND_TRANSIENT;
  uint64_t flags = 0;
  galley_node producer = 0;  ///< the first node that writes it
  int use = no_use;
  galley_tensor parameter = 0;  ///< the parameter to which a gradient, a state or a transient of an update belongs
  galley_tensor gradient = 0;   ///< the gradient buffer of a trained parameter
  int update_use = no_use;      ///< the strategy that updates a trained parameter
  std::string update_text;      ///< what that strategy calls the update: "descend, *.bias"
  bool immediate = false;       ///< the gradient lives until its last contribution, and its parameter is updated there
  int immediate_use = no_use;   ///< the strategy that claims this
  bool unused = false;          ///< nothing in this program needs it: it gets no memory
  Initial initial;
  SourceFile source;
  SavedAs saved;
  Storage storage;
  Slice slice;
  std::optional<galley_part> part = {};  ///< of what a strategy has divided: `shape` is the part's
  Fill fill = Fill::Tokens;              ///< what the data puts into an input
  int64_t below = 0;                     ///< an input's numbers are below this; 0: not known

  int64_t count() const { return elements(shape); }
  /// Returns the shape of the whole tensor of which this may be a part.
  Shape whole() const {
    Shape out = shape;
    if (part) out[part->dimension] = part->whole;
    return out;
  }
  /// Returns how its elements lie in the whole tensor.
  Runs runs() const;
  int64_t bytes() const { return count() * galley_dtype_bytes(dtype); }
  bool parameter_kind() const { return kind == GALLEY_KIND_PARAMETER; }
  bool trainable() const { return flags & GALLEY_TENSOR_TRAINABLE; }
  /// Returns whether an update may write it: it is trained, or a node of a strategy changes it.
  bool changes() const { return flags & (GALLEY_TENSOR_TRAINABLE | GALLEY_TENSOR_WRITTEN); }
  /// Returns whether nodes of forward may write it: it outlives the micro-batch.
  bool written_forward() const { return kind == GALLEY_KIND_CACHE || flags & GALLEY_TENSOR_WRITTEN_FORWARD; }
};

/// Evaluate computes the values that replace parameters when the model is evaluated, Load those with which parameters and states begin.
/// Prompt and Next are forward with caches, of some positions and of one.
enum class Section : uint8_t { Window, Forward, Backward, Update, Evaluate, Export, Sample, Load, Prompt, Next };
inline constexpr std::array<const char*, 10> section_names = {"window", "forward", "backward", "update", "evaluate",
                                                              "export", "sample",  "load",     "prompt", "next"};

/// A choice of operands by index. Operands after its end are not chosen.
using Mask = std::vector<bool>;
inline bool chosen(const Mask& mask, size_t i) { return i < mask.size() && mask[i]; }
inline void choose(Mask& mask, size_t i) {
  if (mask.size() <= i) mask.resize(i + 1);
  mask[i] = true;
}

/// Says in whose name the graph makes tensors and nodes, and into which section they go.
struct Author {
  Section section = Section::Forward;
  int use = no_use;
  int64_t block = -1;
  galley_node origin = 0;
  std::string prefix = {};  ///< begins the names that the graph makes itself
  uint32_t stage = 0;       ///< the stage of an update
  size_t room = SIZE_MAX;   ///< the most tensors and nodes that the graph may have when this author is done
};

/// The dtypes in which a node computes, as claims have decided.
struct Products {
  uint32_t dtype = 0;  ///< the dtype of its products; 0: nobody has claimed one
  bool tf32 = false;   ///< products of F32 may be computed in TF32
  int use = no_use;    ///< who has claimed this
  int64_t weights = GALLEY_WEIGHTS_DERIVED;
};

struct GraphNode {
  galley_node id = 0;
  const galley_op* op = nullptr;
  std::string name;
  std::vector<galley_tensor> inputs;   ///< 0: an optional input that is absent
  std::vector<galley_tensor> outputs;  ///< 0: an optional output that is absent
  std::vector<galley_tensor> given;    ///< the inputs before the host cast some of them; empty: it has cast none
  AttrList attrs;
  std::vector<const galley_attr*> attr_view;  ///< shows `attrs` to plugins; attributes never change once a node is made
  Mask accumulate;                            ///< the outputs that are added to
  int64_t block = -1;
  int use = no_use;
  Section section = Section::Forward;
  uint32_t stage = 0;      ///< the stage in which a strategy made a node of the update
  galley_node origin = 0;  ///< the forward node whose gradient a backward node computes
  bool dropped = false;    ///< other nodes have replaced it: it is in no section any more
  Products products;
};

/// Returns "f32(2, 8)", for messages and dumps.
std::string type_text(const GraphTensor& tensor);

/// Finds an op by its name; nullptr if no plugin provides it.
using OpLookup = std::function<const galley_op*(std::string_view)>;

/// The tensors of the model that passes look for.
struct HeadMarks {
  galley_tensor logits = 0;    ///< marked by the family
  galley_tensor hidden = 0;    ///< the last hidden state, where the head begins; marked by the family
  galley_tensor position = 0;  ///< the rows to sample from; written by the host
  galley_tensor start = 0;     ///< with caches: the position of each row's first token; written by the host
  galley_tensor output = 0;    ///< what `galley embed` shows: `hidden` where the family marks no other
};

/// The extents of a micro-batch.
struct Extents {
  int64_t rows = 0;           ///< B
  int64_t length = 0;         ///< S
  int64_t target_length = 0;  ///< T; 0: there are no targets
};

class Graph {
 public:
  /// Makes an empty graph for micro-batches of this shape. `ops` outlives the graph.
  Graph(OpLookup ops, std::function<std::vector<std::string>()> op_names, const Extents& extents);

  Result<galley_tensor> make(GraphTensor tensor);
  /// Appends a node to the author's section. The op's rule gives the shapes of its outputs; `outputs` is as in galley_node_desc.
  Result<galley_node> append(std::string_view op, std::string name, std::vector<galley_tensor> inputs, AttrList attrs,
                             std::vector<galley_tensor>* outputs, Mask accumulate = {});
  Result<galley_node> append(const galley_op* op, std::string name, std::vector<galley_tensor> inputs, AttrList attrs,
                             std::vector<galley_tensor>* outputs, Mask accumulate = {});
  /// Checks the name that a family or a plugin gives to a node: the names of forward nodes are unique.
  Status check_node_name(const std::string& name) const;
  Status replace(galley_tensor from, galley_tensor to);
  /// Carries out the verb set_input: gives input `input` of a node another tensor.
  Status rewire(galley_node n, size_t input, galley_tensor to);
  /// Removes the nodes of a section that nobody reads since `replace` and `rewire` have given their readers something else.
  void drop_unread(Section s);
  /// Returns whether forward nodes have read the tensor and none does any more.
  bool replaced(galley_tensor t) const;
  galley_tensor find(std::string_view name) const;
  /// Returns the node after `n` in a section: the first one for 0, and 0 after the last one.
  galley_node next_node(Section s, galley_node n) const;
  /// Returns the repeated block of a tensor, -1 if none: that of its producer, or of the first reader of its parameter.
  int64_t block_of(galley_tensor t);

  bool has(galley_tensor t) const { return t >= 1 && t <= tensors_.size(); }
  bool has_node(galley_node n) const { return n >= 1 && n <= nodes_.size(); }
  GraphTensor& tensor(galley_tensor t) { return tensors_[t - 1]; }
  const GraphTensor& tensor(galley_tensor t) const { return tensors_[t - 1]; }
  GraphNode& node(galley_node n) { return nodes_[n - 1]; }
  const GraphNode& node(galley_node n) const { return nodes_[n - 1]; }
  /// Looks tensors up by their ids; the id 0 gives null.
  std::vector<const GraphTensor*> tensors(const std::vector<galley_tensor>& ids) const;
  size_t tensor_count() const { return tensors_.size(); }
  /// Changes an input of a node. It is the only way to do so: the graph keeps the readers of each tensor.
  void set_input(galley_node n, size_t input, galley_tensor t);
  size_t node_count() const { return nodes_.size(); }
  const std::vector<galley_node>& section(Section s) const { return sections_[static_cast<size_t>(s)]; }
  std::vector<galley_node>& section(Section s) { return sections_[static_cast<size_t>(s)]; }
  const galley_op* op(std::string_view name) const { return ops_(name); }
  /// Sorts a section's nodes so that producers come first, and keeps their present order as far as possible.
  void sort(Section s);

  int64_t rows() const { return extents_.rows; }
  int64_t length() const { return extents_.length; }
  const Extents& extents() const { return extents_; }
  /// Takes a node of forward away that adds to the loss.
  Status take_loss(galley_node n);

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
  HeadMarks marks;

 private:
  Status check_room() const;
  galley_tensor updated_parameter(const std::vector<galley_tensor>& inputs) const;

  /// The readers of each tensor and the order of nodes, as far as replace() needs them.
  struct Wiring {
    std::vector<std::vector<galley_node>> readers;  ///< by tensor - 1: the nodes that read it, and some that did once
    /// By node - 1: while strategies rewrite the model, no node has a lower number than a node whose output it reads. A node that a rewrite
    /// makes shares the number of the last node that it reads, so that nothing after that has to move when it reads the new node.
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
    size_t made = 0;  ///< how many nodes were made: part of the names that the graph makes itself
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
  Blocks blocks_;
  mutable size_t next_ = 0;  // where next_node answered last
};

/// Shows a node and its operands to ops; a null pointer is an absent operand. Owns what the view points to; the tensors must not change
/// while it lives.
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

/// Runs an op's shape rule and returns the shapes of the node's outputs. If the rule refuses the node, the error is the rule's text with
/// exit code Recipe, because a configuration may be the reason; the caller knows better whose fault it is.
Result<std::vector<galley_shape>> infer_shapes(const galley_op* op, const galley_node_view* node);

/// Says what is wrong with a tensor as output `i` of a node for which the op's shape rule says `inferred`; returns "" if nothing is.
std::string output_problem(const galley_op& op, size_t i, const galley_shape& inferred, const GraphTensor& tensor);

/// Returns the rule of input `i`, nullptr if there is none. The last rule repeats if it is variadic.
const galley_operand_rule* input_rule(const galley_op* op, size_t i);
/// Returns the rows of an operand of this shape, as its rule counts them.
int64_t rows_of(const galley_operand_rule& rule, const Shape& shape);
/// Returns whether the op updates input `i` in place.
bool updates_input(const galley_op* op, size_t i);
const galley_operand_rule* output_rule(const galley_op* op, size_t i);
/// Returns the tensors that a node writes: its outputs, and the inputs that it updates in place.
std::vector<galley_tensor> written_by(const GraphNode& node);

/// Says what is wrong with a list of inputs of an op; returns "" if nothing is.
std::string inputs_problem(const Graph& graph, const galley_op& op, const std::vector<galley_tensor>& inputs);

}  // namespace galley
