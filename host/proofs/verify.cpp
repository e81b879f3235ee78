#include "host/proofs/verify.hpp"

#include <algorithm>

#include "galley/op.h"
#include "host/plugins/attributes.hpp"

namespace galley {
namespace {

/// Sections that run as one: what one of them leaves, the next one finds.
enum class Scope : uint8_t { None, Window, Micro, Update, Evaluate, Export, Sample, Load, Prompt, Next };
Scope scope_of(Section s) {
  switch (s) {
    case Section::Window: return Scope::Window;
    case Section::Update: return Scope::Update;
    case Section::Evaluate: return Scope::Evaluate;
    case Section::Export: return Scope::Export;
    case Section::Sample: return Scope::Sample;
    case Section::Load: return Scope::Load;
    case Section::Prompt: return Scope::Prompt;
    case Section::Next: return Scope::Next;
    default: return Scope::Micro;
  }
}

class Verifier {
 public:
  Verifier(Compilation& c, std::string_view pass) : c_(c), graph_(c.graph), pass_(pass), writer_(graph_.tensor_count() + 1, 0) {}

  Status run() {
    for (galley_tensor t = 1; t <= graph_.tensor_count(); ++t) TRY_STATUS(check_tensor(graph_.tensor(t)));
    c_.inferred.resize(graph_.node_count() + 1);
    for (const Section s : {Section::Window, Section::Forward, Section::Backward, Section::Update, Section::Evaluate, Section::Export,
                            Section::Sample, Section::Load, Section::Prompt, Section::Next})
      for (const galley_node n : graph_.section(s)) TRY_STATUS(check_node(graph_.node(n)));
    if (!graph_.section(Section::Backward).empty())
      for (const galley_tensor t : c_.decisions.trainable) {
        const GraphTensor& p = graph_.tensor(t);
        if (!p.gradient || !writer_[p.gradient]) return wrong_tensor(p, "is to be trained, but no node writes its gradient");
      }
    return check_skipped_steps();
  }

 private:
  // ---- Who is to blame -------------------------------------------------------------------------------------------------------

  std::string strategy(int use) const { return label_and_plugin(c_.strategies, use); }
  Error error(const std::string& who, bool plugin, const std::string& text) const {
    const std::string cause = "after pass '" + std::string(pass_) + "': " + who + " " + text;
    if (plugin) return plugin_error(cause, "report it to the plugin's author");
    return run_error(cause, "this is a bug in Galley, not in the recipe: please report it with the recipe");
  }
  Error wrong(const GraphNode& node, const std::string& text) const { return wrong(node, node, text); }
  /// `guilty`: the node whose author is to blame.
  Error wrong(const GraphNode& node, const GraphNode& guilty, const std::string& text) const {
    std::string who = "node '" + node.name + "' (op '" + node.op->name + "'";
    std::string author = ", made by ";
    if (guilty.id != node.id) author = ", because of '" + guilty.name + "', made by ";
    bool plugin = true;
    if (guilty.use != no_use) {
      who += author + strategy(guilty.use);
    } else if (guilty.origin) {
      const GraphNode& of = graph_.node(guilty.origin);
      who += author + "the gradient rule of op '" + of.op->name + "' of '" + of.name + "', plugin '" + owner_of(of.op) + "'";
    } else {
      who += ", of plugin '" + owner_of(node.op) + "'";
      plugin = owner_of(node.op) != standard_plugin;
    }
    return error(who + ")", plugin, text);
  }
  Error wrong_tensor(const GraphTensor& t, const std::string& text) const {
    return error("tensor '" + t.name + "'" + (t.use == no_use ? "" : " (made by " + strategy(t.use) + ")"), t.use != no_use, text);
  }

  // ---- Tensors ---------------------------------------------------------------------------------------------------------------

  Status check_tensor(const GraphTensor& t) const {
    if (t.shape.size() > GALLEY_MAX_RANK) return wrong_tensor(t, "has rank " + std::to_string(t.shape.size()));
    if (!galley_dtype_bytes(t.dtype)) return wrong_tensor(t, "has the unknown dtype " + std::to_string(t.dtype));
    if (t.kind < GALLEY_KIND_PARAMETER || t.kind > GALLEY_KIND_CACHE)
      return wrong_tensor(t, "is of the unknown kind " + std::to_string(t.kind));
    if (t.slice.of && (t.slice.offset < 0 || t.slice.offset + t.bytes() > graph_.tensor(t.slice.of).bytes()))
      return wrong_tensor(t, "lies beyond '" + graph_.tensor(t.slice.of).name + "', of which it is a part");
    return ok();
  }

  // ---- Nodes -----------------------------------------------------------------------------------------------------------------

  Status check_node(const GraphNode& node) {
    TRY_STATUS(check_operands(node));
    TRY_STATUS(check_shapes(node));
    TRY_STATUS(check_exchange(node));
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i]) TRY_STATUS(check_input(node, i));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i]) TRY_STATUS(check_output(node, i));
    return check_overlaps(node);
  }

  Status check_operands(const GraphNode& node) const {
    const galley_op* op = node.op;
    const bool variadic = op->n_inputs && op->inputs[op->n_inputs - 1]->flags & GALLEY_OPERAND_VARIADIC;
    if (node.inputs.size() > op->n_inputs && !variadic)
      return wrong(node, "has " + std::to_string(node.inputs.size()) + " inputs; the op takes " + std::to_string(op->n_inputs));
    if (node.outputs.size() > op->n_outputs)
      return wrong(node, "has " + std::to_string(node.outputs.size()) + " outputs; the op has " + std::to_string(op->n_outputs));
    for (size_t i = 0; i < op->n_inputs; ++i) {
      const bool optional = op->inputs[i]->flags & (GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_VARIADIC);
      if (!optional && (i >= node.inputs.size() || !node.inputs[i]))
        return wrong(node, std::string("lacks its input '") + op->inputs[i]->name + "'");
    }
    return ok();
  }

  /// What a node writes it takes once.
  Status check_overlaps(const GraphNode& node) const {
    std::vector<galley_tensor> all = node.inputs;
    all.insert(all.end(), node.outputs.begin(), node.outputs.end());
    for (size_t i = 0; i < all.size(); ++i) {
      const bool writes = i >= node.inputs.size() || updates_input(node.op, i);
      if (writes && all[i] && std::count(all.begin(), all.end(), all[i]) > 1)
        return wrong(node, "writes '" + graph_.tensor(all[i]).name + "', which is another operand of it as well");
    }
    return ok();
  }

  /// What the op's rule says is what is there. A node is asked about again only when its inputs have been replaced.
  Status check_shapes(const GraphNode& node) {
    std::vector<galley_tensor>& before = c_.inferred[node.id];
    if (!before.empty() && before == node.inputs) return ok();
    const galley_op* op = node.op;
    if (!op->infer) return op->n_outputs ? Status(wrong(node, "has no shape rule")) : ok();
    // An initializer may go by the tensor that it fills.
    const std::vector<const GraphTensor*> outputs =
        node.section == Section::Load ? graph_.tensors(node.outputs) : std::vector<const GraphTensor*>();
    const NodeDescription description(op, node.name, graph_.tensors(node.inputs), node.attrs, outputs, {}, graph_.length());
    const Result<std::vector<galley_shape>> shapes = infer_shapes(op, description.view());
    if (!shapes) return wrong(node, "is not what its op takes: " + shapes.error().cause);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!node.outputs[i]) continue;
      if (const std::string problem = output_problem(*op, i, (*shapes)[i], graph_.tensor(node.outputs[i])); !problem.empty())
        return wrong(node, problem);
    }
    before = node.inputs;
    return ok();
  }

  // ---- Who writes what, and when it is read --------------------------------------------------------------------------------------

  /// What the window part will write has no writer before there is one.
  bool written(galley_tensor t, const GraphNode& before) const {
    if (!writer_[t]) return graph_.section(Section::Window).empty() && graph_.tensor(t).use != no_use && !graph_.tensor(t).producer;
    const Scope writer = scope_of(graph_.node(writer_[t]).section), reader = scope_of(before.section);
    // Where the model is run by itself, the window's nodes run in the same segment.
    const bool after_window = reader == Scope::Micro || reader == Scope::Update || reader == Scope::Prompt || reader == Scope::Next;
    return writer == reader || (writer == Scope::Window && after_window);
  }

  Status check_input(const GraphNode& node, size_t i) {
    const GraphTensor& t = graph_.tensor(node.inputs[i]);
    if (node.section == Section::Evaluate && !lasts(t.kind) && t.kind != GALLEY_KIND_TRANSIENT)
      return wrong(node, "reads '" + t.name + "': what is made for evaluation is made of parameters, states and constants");
    if (node.section == Section::Load && !lasts(t.kind) && t.kind != GALLEY_KIND_TRANSIENT && t.kind != GALLEY_KIND_FILE)
      return wrong(node, "reads '" + t.name + "': what is loaded is made of files, parameters, states and constants");
    if (t.kind == GALLEY_KIND_FILE && node.section != Section::Load)
      return wrong(node, "reads '" + t.name + "', which lies in a file: only nodes of the load part do");
    if (t.kind == GALLEY_KIND_TRANSIENT && !handed_to_sample(node, t) && !written(t.id, node)) {
      if (writer_[t.id])
        return wrong(node,
                     "reads '" + t.name + "', which is gone when the " + section_names[static_cast<size_t>(node.section)] + " part runs");
      // Only `replace` makes a reader of what comes later: whoever made that has replaced it.
      if (t.producer)
        return wrong(node, graph_.node(t.producer), "reads '" + t.name + "' before '" + graph_.node(t.producer).name + "' writes it");
      return wrong(node, "reads '" + t.name + "', which no node writes");
    }
    if (t.kind == GALLEY_KIND_GRADIENT && !writer_[t.id]) return wrong(node, "reads '" + t.name + "', which no node has written");
    if (t.kind == GALLEY_KIND_GRADIENT && scope_of(node.section) != Scope::Micro && node.section != Section::Update)
      return wrong(node,
                   "reads '" + t.name + "', which is gone when the " + section_names[static_cast<size_t>(node.section)] + " part runs");
    if (updates_input(node.op, i)) TRY_STATUS(check_written(node, t));
    if (node.section == Section::Forward && t.flags & GALLEY_TENSOR_WRITTEN_FORWARD) forward_reads_.insert(t.id);
    return ok();
  }

  /// The sample part is spliced into forward, after the last hidden state.
  bool handed_to_sample(const GraphNode& node, const GraphTensor& t) const {
    return node.section == Section::Sample && t.id == graph_.marks.hidden && writer_[t.id];
  }

  /// Whether a node of this section may change what the tensor holds.
  Status check_written(const GraphNode& node, const GraphTensor& t) {
    const std::string section = section_names[static_cast<size_t>(node.section)];
    switch (t.kind) {
      case GALLEY_KIND_CONSTANT:
      case GALLEY_KIND_FILE:
      case GALLEY_KIND_INPUT: return wrong(node, "writes '" + t.name + "', which nodes only read");
      case GALLEY_KIND_PARAMETER:
        if (node.section == Section::Update && !t.changes()) return wrong(node, "writes '" + t.name + "', which is frozen");
        [[fallthrough]];
      case GALLEY_KIND_STATE:
        if (node.section == Section::Forward && t.flags & GALLEY_TENSOR_WRITTEN_FORWARD) return check_written_forward(node, t);
        if (node.section != Section::Update) return wrong(node, "writes '" + t.name + "' in the " + section + " part; only the update may");
        return ok();
      case GALLEY_KIND_CACHE:
        if (node.section != Section::Forward && node.section != Section::Prompt && node.section != Section::Next)
          return wrong(node, "writes the cache '" + t.name + "' in the " + section + " part; only forward may");
        if (node.section == Section::Forward && c_.backward())
          return wrong(node, "writes the cache '" + t.name +
                                 "' in a program with a backward part, and a run that is resumed has zeros there: " +
                                 "a state with GALLEY_TENSOR_WRITTEN_FORWARD is saved");
        return ok();
      case GALLEY_KIND_GRADIENT:
        if (node.section != Section::Backward && node.section != Section::Update)
          return wrong(node, "writes '" + t.name + "' in the " + section + " part");
        return ok();
      default: return ok();
    }
  }

  Status check_exchange(const GraphNode& node) const {
    if (!(node.op->flags & GALLEY_OP_EXCHANGE)) return ok();
    const galley_attr* axis = node.attrs.find("axis");
    const std::string name = axis ? attr_text(*axis) : "";
    const galley_axis* const of_run = c_.draft.run.axes ? c_.draft.run.axes->find(name) : nullptr;
    if (!of_run) return wrong(node, "exchanges along the axis '" + name + "', which the run does not have");
    const std::tuple<const char*, int64_t, int64_t> is[] = {
        {"ranks", of_run->ranks, 1}, {"rank", of_run->rank, of_run->rank}, {"stride", of_run->stride, 1}};
    for (const auto& [what, value, otherwise] : is) {
      const int64_t number = node.attrs.integer(what, otherwise);
      if (number != value)
        return wrong(node, "exchanges along the axis '" + name + "' with " + what + " = " + std::to_string(number) + ", which is " +
                               std::to_string(value));
    }
    return ok();
  }

  /// Backward and recomputation find in a state what forward has read, and only training changes it.
  Status check_written_forward(const GraphNode& node, const GraphTensor& t) {
    if (!(node.op->flags & GALLEY_OP_TRAINING_ONLY))
      return wrong(node, "writes '" + t.name + "' and its op lacks GALLEY_OP_TRAINING_ONLY, so evaluation would change the state");
    if (forward_reads_.contains(t.id))
      return wrong(node,
                   "writes '" + t.name + "' after another node of forward has read or written it: backward would find other numbers there");
    forward_reads_.insert(t.id);
    return ok();
  }

  Status check_output(const GraphNode& node, size_t i) {
    const GraphTensor& t = graph_.tensor(node.outputs[i]);
    TRY_STATUS(check_written(node, t));
    const bool adds = chosen(node.accumulate, i);
    if (adds && !(node.op->outputs[i]->flags & GALLEY_OPERAND_ACCUMULATES))
      return wrong(node, "adds to '" + t.name + "', which its op cannot");
    if (t.kind == GALLEY_KIND_TRANSIENT || (t.kind == GALLEY_KIND_GRADIENT && node.section == Section::Backward)) {
      if (writer_[t.id] && !adds)
        return wrong(node, "overwrites '" + t.name + "', which '" + graph_.node(writer_[t.id]).name + "' has written");
      if (!writer_[t.id] && adds) return wrong(node, "adds to '" + t.name + "', which no node has written");
    }
    if (!writer_[t.id]) writer_[t.id] = node.id;
    return ok();
  }

  /// A step that is skipped changes nothing: what a strategy appends and writes parameters or states knows of GALLEY_SCALAR_APPLY, by
  /// reading it or what was made of it. Stage CHECK, which decides on it, keeps count of skipped steps as well.
  Status check_skipped_steps() const {
    const galley_tensor apply = graph_.find("scalar.apply");
    std::vector<bool> knows(graph_.tensor_count() + 1, false);
    if (apply) knows[apply] = true;
    for (const galley_node n : graph_.section(Section::Update)) {
      const GraphNode& node = graph_.node(n);
      const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(), [&](galley_tensor t) { return knows[t]; });
      for (const galley_tensor t : node.outputs)
        if (reads && t && graph_.tensor(t).kind == GALLEY_KIND_TRANSIENT) knows[t] = true;
      if (reads || !node.stage || node.stage == GALLEY_STAGE_CHECK) continue;
      for (const galley_tensor t : written_by(node)) {
        if (const uint32_t kind = graph_.tensor(t).kind; kind == GALLEY_KIND_PARAMETER || kind == GALLEY_KIND_STATE)
          return wrong(node, "writes '" + graph_.tensor(t).name + "' and does not read GALLEY_SCALAR_APPLY, so a skipped step changes it");
      }
    }
    return ok();
  }

  Compilation& c_;
  const Graph& graph_;
  std::string_view pass_;
  std::set<galley_tensor> forward_reads_;  ///< states that forward writes, of those that a node before has read
  std::vector<galley_node> writer_;        ///< by tensor: the first node that writes it, in the order of the run
};

}  // namespace

Status verify_graph(Compilation& c, std::string_view pass) { return Verifier(c, pass).run(); }

}  // namespace galley
