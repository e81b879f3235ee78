#include "host/graph/graph.hpp"

#include <algorithm>
#include <set>

#include "galley/op.h"
#include "host/base/nearest.hpp"
#include "host/plugins/attributes.hpp"
#include "host/plugins/library.hpp"

namespace galley {

Graph::Graph(OpLookup ops, std::function<std::vector<std::string>()> op_names, const Extents& extents)
    : ops_(std::move(ops)), op_names_(std::move(op_names)), extents_(extents) {}

/// Who adds without end would take all memory.
Status Graph::check_room() const {
  if (tensors_.size() + nodes_.size() < author.room) return ok();
  if (author.use == no_use)
    return recipe_error("the model has more than " + std::to_string(author.room) + " tensors and nodes", "look at its number of layers");
  return plugin_error("the graph has " + std::to_string(author.room) + " tensors and nodes now, most of which this call has added",
                      "what a rewrite has added it must not adapt again");
}

Runs GraphTensor::runs() const {
  if (!part) return {};
  const int64_t inner = elements(Shape(shape.begin() + part->dimension + 1, shape.end()));
  if (part->dimension == 0) return {part->first * inner};
  return {part->first * inner, shape[part->dimension] * inner, part->whole * inner};
}

Result<galley_tensor> Graph::make(GraphTensor tensor) {
  TRY_STATUS(check_room());
  if (tensor.name.empty()) return plugin_error("a tensor without a name");
  // Sizes come from configurations: anything that no memory could hold is refused before it can overflow.
  constexpr int64_t largest = int64_t{1} << 48;
  int64_t elements_so_far = 1;
  for (const int64_t extent : tensor.shape) {
    if (extent < 0) return plugin_error("tensor '" + tensor.name + "': negative extent " + std::to_string(extent));
    if (extent > 0 && elements_so_far > largest / extent)
      return recipe_error("tensor '" + tensor.name + "' would have more than 2^48 elements: an extent of it is " + std::to_string(extent),
                          "look at the sizes in the configuration");
    elements_so_far *= extent;
  }
  if (tensor.kind != GALLEY_KIND_TRANSIENT && names_.tensors.contains(tensor.name))
    return plugin_error("two tensors of the name '" + tensor.name + "'");
  if (tensor.shape.size() > GALLEY_MAX_RANK)
    return plugin_error("tensor '" + tensor.name + "' has rank " + std::to_string(tensor.shape.size()) + "; " +
                        std::to_string(GALLEY_MAX_RANK) + " is the most");
  tensor.id = tensors_.size() + 1;
  tensor.use = author.use;
  names_.tensors.try_emplace(tensor.name, tensor.id);
  tensors_.push_back(std::move(tensor));
  wiring_.readers.emplace_back();
  return tensors_.back().id;
}

galley_tensor Graph::find(std::string_view name) const {
  const auto it = names_.tensors.find(name);
  return it == names_.tensors.end() ? 0 : it->second;
}

std::vector<const GraphTensor*> Graph::tensors(const std::vector<galley_tensor>& ids) const {
  std::vector<const GraphTensor*> out;
  out.reserve(ids.size());
  for (const galley_tensor t : ids) out.push_back(t ? &tensor(t) : nullptr);
  return out;
}

Result<galley_node> Graph::append(std::string_view op_name, std::string name, std::vector<galley_tensor> inputs, AttrList attrs,
                                  std::vector<galley_tensor>* outputs, Mask accumulate) {
  if (const galley_op* op = ops_(op_name))
    return append(op, std::move(name), std::move(inputs), std::move(attrs), outputs, std::move(accumulate));
  const auto names = op_names_();
  return recipe_error("no plugin provides the op '" + std::string(op_name) + "'", did_you_mean(op_name, names));
}

Result<galley_node> Graph::append(const galley_op* op, std::string name, std::vector<galley_tensor> inputs, AttrList attrs,
                                  std::vector<galley_tensor>* outputs, Mask accumulate) {
  TRY_STATUS(check_room());
  const std::string op_name = op->name;
  if (const std::string wrong = inputs_problem(*this, *op, inputs); !wrong.empty()) return plugin_error(wrong);
  if (const std::string wrong = attrs_problem(*op, attrs.view()); !wrong.empty()) return plugin_error(wrong);
  for (const galley_tensor t : *outputs)
    if (t && !has(t)) return plugin_error(op_name + ": an output that is no tensor of this graph");
  for (const galley_tensor t : inputs)
    if (const galley_node by = t ? tensor(t).producer : 0; by && node(by).dropped)
      return plugin_error(op_name + " reads '" + tensor(t).name + "' of the node '" + node(by).name + "', which has been replaced");
  ++names_.made;
  const galley_tensor about = updated_parameter(inputs);
  if (name.empty()) name = author.prefix + (about ? tensor(about).name + "." : "") + op_name + "." + std::to_string(names_.made);
  outputs->resize(std::max<size_t>(outputs->size(), op->n_outputs), 0);

  bool infer = false;
  for (size_t i = 0; i < op->n_outputs; ++i) infer = infer || !(*outputs)[i];
  if (infer) {
    if (!op->infer) return plugin_error(op_name + " has no shape rule");
    const NodeDescription description(op, name, tensors(inputs), attrs, {}, {}, extents_.length);
    const std::vector<galley_shape> shapes = TRY(infer_shapes(op, description.view()));
    for (size_t i = 0; i < op->n_outputs; ++i) {
      if ((*outputs)[i] || !shapes[i].dtype) continue;
      GraphTensor t;
      t.name = i == 0 ? name : name + "." + op->outputs[i]->name;
      t.dtype = shapes[i].dtype;
      t.shape.assign(shapes[i].extents, shapes[i].extents + shapes[i].rank);
      t.parameter = about;
      if (elements(t.shape) == 0) return plugin_error(op_name + ": '" + t.name + "' would have no element, " + shape_text(t.shape));
      (*outputs)[i] = TRY(make(std::move(t)));
    }
  }

  GraphNode node;
  node.id = nodes_.size() + 1;
  node.op = op;
  node.name = std::move(name);
  node.inputs = std::move(inputs);
  node.outputs = *outputs;
  node.attrs = std::move(attrs);
  node.attr_view = node.attrs.view();
  node.accumulate = std::move(accumulate);
  node.use = author.use;
  node.section = author.section;
  node.stage = author.stage;
  node.origin = author.origin;
  node.block = author.block;
  if (node.block < 0 && node.use != no_use &&
      node.section == Section::Forward) {  // a rewrite's node belongs where its first input comes from
    for (const galley_tensor t : node.inputs) {
      if (!t || !tensor(t).producer) continue;
      node.block = this->node(tensor(t).producer).block;
      break;
    }
  }
  section(node.section).push_back(node.id);
  if (node.section == Section::Forward) names_.forward_nodes.insert(node.name);
  add_to_order(node);
  for (const galley_tensor t : node.inputs) add_reader(t, node.id);
  nodes_.push_back(std::move(node));
  return nodes_.back().id;
}

/// Of a node that a strategy makes for an update: the first parameter that it reads, or reads something of; else 0.
galley_tensor Graph::updated_parameter(const std::vector<galley_tensor>& inputs) const {
  if (!author.stage) return 0;
  for (const galley_tensor t : inputs)
    if (const galley_tensor about = !t ? 0 : tensor(t).parameter_kind() ? t : tensor(t).parameter) return about;
  return 0;
}

Status Graph::check_node_name(const std::string& name) const {
  if (author.section != Section::Forward || !names_.forward_nodes.contains(name)) return ok();
  return plugin_error("two forward nodes of the name '" + name + "'", "random numbers are keyed by it: each node needs one of its own");
}

Status Graph::replace(galley_tensor from, galley_tensor to) {
  if (!has(from) || !has(to)) return plugin_error("replace: no such tensor");
  if (tensor(from).shape != tensor(to).shape || tensor(from).dtype != tensor(to).dtype)
    return plugin_error("replace: '" + tensor(to).name + "' has not the shape and dtype of '" + tensor(from).name + "'");
  const std::set<galley_node> makers = makers_of(to, tensor(from).producer);
  for (const galley_node n : std::vector(wiring_.readers[from - 1])) {
    if (node(n).section != author.section || makers.contains(n)) continue;
    for (size_t i = 0; i < node(n).inputs.size(); ++i)
      if (node(n).inputs[i] == from) set_input(n, i, to);
    move_after(n, order_of(to));
  }
  if (marks.logits == from) marks.logits = to;
  if (marks.hidden == from) marks.hidden = to;
  if (marks.output == from) marks.output = to;
  if (tensor(from).flags & GALLEY_TENSOR_BLOCK_INPUT) {
    tensor(from).flags &= ~static_cast<uint64_t>(GALLEY_TENSOR_BLOCK_INPUT);
    tensor(to).flags |= GALLEY_TENSOR_BLOCK_INPUT;
  }
  return ok();
}

/// Of the nodes that make `t`, those that may read what `writer` writes: what stands before it does not, so that in the common case, where
/// `t` is made of that by a few new nodes, these few are all that is looked at.
std::set<galley_node> Graph::makers_of(galley_tensor t, galley_node writer) const {
  std::set<galley_node> makers;
  std::vector<galley_tensor> pending = {t};
  while (!pending.empty()) {
    const galley_node producer = tensor(pending.back()).producer;
    pending.pop_back();
    if (!producer || producer == writer || (writer && wiring_.order[producer - 1] < wiring_.order[writer - 1])) continue;
    if (!makers.insert(producer).second) continue;
    for (const galley_tensor in : node(producer).inputs)
      if (in) pending.push_back(in);
  }
  return makers;
}

Status Graph::rewire(galley_node n, size_t input, galley_tensor to) {
  if (!has_node(n) || node(n).dropped) return plugin_error("set_input: no such node");
  const GraphNode& reader = node(n);
  if (reader.section != author.section) return plugin_error("set_input: '" + reader.name + "' is no node of the graph that is being built");
  if (input >= reader.inputs.size() || !reader.inputs[input])
    return plugin_error("set_input: '" + reader.name + "' has no input " + std::to_string(input));
  if (!has(to)) return plugin_error("set_input: no such tensor");
  const GraphTensor& from = tensor(reader.inputs[input]);
  if (from.shape != tensor(to).shape || from.dtype != tensor(to).dtype)
    return plugin_error("set_input: '" + tensor(to).name + "' has not the shape and dtype of '" + from.name + "', which '" + reader.name +
                        "' reads");
  std::set<galley_tensor> read = {to};
  for (const galley_node maker : makers_of(to, n)) read.insert(node(maker).inputs.begin(), node(maker).inputs.end());
  for (const galley_tensor written : reader.outputs)
    if (written && read.contains(written))
      return plugin_error("set_input: '" + tensor(to).name + "' is made from what '" + reader.name + "' writes");
  set_input(n, input, to);
  move_after(n, order_of(to));
  return ok();
}

Status Graph::take_loss(galley_node n) {
  if (!has_node(n) || node(n).dropped) return plugin_error("take_loss: no such node");
  GraphNode& x = node(n);
  if (x.section != Section::Forward || !(x.op->flags & GALLEY_OP_LOSS))
    return plugin_error("take_loss: '" + x.name + "' is no node of forward that adds to the loss");
  x.dropped = true;
  names_.forward_nodes.erase(x.name);
  std::erase(section(Section::Forward), n);
  return ok();
}

bool Graph::has_readers(galley_tensor t) const {
  const std::vector<galley_node>& readers = wiring_.readers[t - 1];
  return std::any_of(readers.begin(), readers.end(),
                     [&](galley_node n) { return !node(n).dropped && std::ranges::find(node(n).inputs, t) != node(n).inputs.end(); });
}

/// Whether somebody other than a node reads a transient.
bool Graph::is_marked(galley_tensor t) const { return t == marks.logits || t == marks.hidden || t == marks.output; }

bool Graph::replaced(galley_tensor t) const { return !wiring_.readers[t - 1].empty() && !has_readers(t); }

void Graph::drop_unread(Section s) {
  std::vector<galley_node>& nodes = section(s);
  for (size_t i = nodes.size(); i-- > 0;) {
    GraphNode& x = node(nodes[i]);
    bool lost = false, read = false;
    for (const galley_tensor t : x.outputs) {
      if (!t) continue;
      lost = lost || replaced(t);
      read = read || tensor(t).kind != GALLEY_KIND_TRANSIENT || is_marked(t) || has_readers(t);
    }
    for (size_t k = 0; k < x.inputs.size(); ++k)  // what it changes in place is for others
      read = read || updates_input(x.op, k);
    x.dropped = lost && !read;
    if (x.dropped) names_.forward_nodes.erase(x.name);
  }
  std::erase_if(nodes, [&](galley_node n) { return node(n).dropped; });
}

size_t Graph::order_of(galley_tensor t) const { return t && tensor(t).producer ? wiring_.order[tensor(t).producer - 1] : 0; }

/// After `n`, only nodes that stand before the new place move. Where a few nodes were put between a node and its readers, none does.
void Graph::move_after(galley_node n, size_t order) {
  std::vector<galley_node> pending = {n};
  while (!pending.empty()) {
    const galley_node moved = pending.back();
    pending.pop_back();
    if (wiring_.order[moved - 1] >= order) continue;
    wiring_.order[moved - 1] = order;
    for (const galley_tensor t : node(moved).outputs)
      if (t) pending.insert(pending.end(), wiring_.readers[t - 1].begin(), wiring_.readers[t - 1].end());
  }
}

void Graph::add_to_order(const GraphNode& added) {
  size_t order = added.id;
  if (added.use != no_use && added.section == Section::Forward) {  // what a rewrite makes will be read in the middle of the model
    order = 0;
    for (const galley_tensor t : added.inputs) order = std::max(order, order_of(t));
  }
  wiring_.order.push_back(order);
  for (const galley_tensor t : added.outputs) {
    if (!t || tensor(t).producer) continue;
    tensor(t).producer = added.id;
    for (const galley_node n : wiring_.readers[t - 1])  // of a tensor that was there before
      if (node(n).section == added.section) move_after(n, order);
  }
}

void Graph::add_reader(galley_tensor t, galley_node n) {
  if (!t) return;
  std::vector<galley_node>& readers = wiring_.readers[t - 1];
  if (readers.empty() || readers.back() != n) readers.push_back(n);
}

void Graph::set_input(galley_node n, size_t input, galley_tensor t) {
  node(n).inputs[input] = t;
  add_reader(t, n);
}

galley_node Graph::next_node(Section s, galley_node n) const {
  const std::vector<galley_node>& nodes = section(s);
  if (!n) return nodes.empty() ? 0 : nodes.front();
  // Callers walk in order: the place of the last answer is nearly always the one that is asked about.
  if (next_ >= nodes.size() || nodes[next_] != n) {
    const auto found = std::find(nodes.begin(), nodes.end(), n);
    if (found == nodes.end()) return 0;
    next_ = static_cast<size_t>(found - nodes.begin());
  }
  ++next_;
  return next_ < nodes.size() ? nodes[next_] : 0;
}

int64_t Graph::block_of(galley_tensor t) {
  const GraphTensor& x = tensor(t);
  if (x.producer) return node(x.producer).block;
  const galley_tensor owner = x.parameter ? x.parameter : t;
  // A tensor's block is its first reader's; all are found at once.
  const std::vector<galley_node>& nodes = section(Section::Forward);
  if (blocks_.nodes != nodes.size()) {
    blocks_.of.clear();
    for (const galley_node n : nodes)
      for (const galley_tensor in : node(n).inputs)
        if (in) blocks_.of.try_emplace(in, node(n).block);
    blocks_.nodes = nodes.size();
  }
  const auto found = blocks_.of.find(owner);
  return found == blocks_.of.end() ? -1 : found->second;
}

void Graph::sort(Section s) {
  std::vector<galley_node>& nodes = section(s);
  std::vector<galley_node> sorted;
  std::set<galley_node> done;
  // Depth first from each node in turn, so that what was appended late stands right before its first reader. Explicit stack: graphs are
  // deep.
  for (const galley_node root : nodes) {
    std::vector<std::pair<galley_node, size_t>> stack = {{root, 0}};
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      if (done.contains(n)) {
        stack.pop_back();
        continue;
      }
      const GraphNode& nd = node(n);
      bool descended = false;
      while (next < nd.inputs.size()) {
        const galley_tensor t = nd.inputs[next++];
        const galley_node producer = t ? tensor(t).producer : 0;
        if (producer && node(producer).section == s && !done.contains(producer) && producer != n) {
          stack.emplace_back(producer, 0);
          descended = true;
          break;
        }
      }
      if (descended) continue;
      done.insert(n);
      sorted.push_back(n);
      stack.pop_back();
    }
  }
  nodes = std::move(sorted);
  for (size_t i = 0; i < nodes.size(); ++i) wiring_.order[nodes[i] - 1] = i + 1;
}

Result<std::vector<galley_shape>> infer_shapes(const galley_op* op, const galley_node_view* node) {
  const std::string what = "infer of op '" + std::string(op->name) + "', node '" + node->name + "'";
  std::vector<galley_shape> shapes(op->n_outputs, {sizeof(galley_shape), 1, 0, 0, {}, 0});
  std::vector<galley_shape*> pointers;
  pointers.reserve(shapes.size());
  for (galley_shape& s : shapes) pointers.push_back(&s);
  std::optional<Error> declined;
  const Caller caller = caller_of(op, op->name);
  TRY_STATUS(call_plugin(caller, what, [&](galley_error* error) {
    const galley_status status = op->infer(op->self, node, pointers.data(), error);
    if (status != GALLEY_INVALID && status != GALLEY_UNSUPPORTED) return status;
    declined = recipe_error(error->text, error->hint);
    return GALLEY_OK;
  }));
  if (declined) return *declined;
  for (const galley_shape& s : shapes)
    if (s.rank > GALLEY_MAX_RANK)
      return plugin_error(what + ", plugin '" + caller.plugin + "': an output of rank " + std::to_string(s.rank));
  return shapes;
}

std::string output_problem(const galley_op& op, size_t i, const galley_shape& inferred, const GraphTensor& tensor) {
  const Shape shape(inferred.extents, inferred.extents + inferred.rank);
  if (inferred.dtype == tensor.dtype && shape == tensor.shape) return {};
  return "writes " + (inferred.dtype ? dtype_text(inferred.dtype) + shape_text(shape) : "nothing") + " as '" + op.outputs[i]->name +
         "', but '" + tensor.name + "' is " + type_text(tensor);
}

std::string type_text(const GraphTensor& tensor) { return dtype_text(tensor.dtype) + shape_text(tensor.shape); }

const galley_operand_rule* input_rule(const galley_op* op, size_t i) {
  if (i < op->n_inputs) return op->inputs[i];
  if (op->n_inputs && op->inputs[op->n_inputs - 1]->flags & GALLEY_OPERAND_VARIADIC) return op->inputs[op->n_inputs - 1];
  return nullptr;
}

int64_t rows_of(const galley_operand_rule& rule, const Shape& shape) {
  return rule.flags & GALLEY_OPERAND_SAME_ROWS || shape.empty() ? elements(shape) : elements(shape) / std::max<int64_t>(shape.back(), 1);
}

bool updates_input(const galley_op* op, size_t i) {
  const galley_operand_rule* rule = input_rule(op, i);
  return rule && rule->flags & GALLEY_OPERAND_INOUT;
}

const galley_operand_rule* output_rule(const galley_op* op, size_t i) { return i < op->n_outputs ? op->outputs[i] : nullptr; }

std::vector<galley_tensor> written_by(const GraphNode& node) {
  std::vector<galley_tensor> out = node.outputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (updates_input(node.op, i)) out.push_back(node.inputs[i]);
  std::erase(out, 0u);
  return out;
}

std::string inputs_problem(const Graph& graph, const galley_op& op, const std::vector<galley_tensor>& inputs) {
  const bool variadic = op.n_inputs && op.inputs[op.n_inputs - 1]->flags & GALLEY_OPERAND_VARIADIC;
  if (inputs.size() > op.n_inputs && !variadic)
    return std::string(op.name) + " takes " + std::to_string(op.n_inputs) + " inputs, got " + std::to_string(inputs.size());
  for (const galley_tensor t : inputs)
    if (t && !graph.has(t)) return std::string(op.name) + ": an input that is no tensor of this graph";
  for (size_t i = 0; i < op.n_inputs; ++i) {
    const bool optional = op.inputs[i]->flags & (GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_VARIADIC);
    if (!optional && (i >= inputs.size() || !inputs[i])) return std::string(op.name) + ": input '" + op.inputs[i]->name + "' is missing";
  }
  return {};
}

NodeDescription::NodeDescription(const galley_op* op, const std::string& name, const std::vector<const GraphTensor*>& inputs,
                                 const AttrList& attrs, const std::vector<const GraphTensor*>& outputs, const Mask& accumulate,
                                 int64_t length)
    : attrs_(attrs.view()) {
  const auto describe = [&](const GraphTensor* g, uint32_t access) -> const galley_operand* {
    if (!g) return nullptr;
    operands_.push_back({sizeof(galley_operand), 1, g->name.c_str(), nullptr, g->shape.data(), static_cast<uint32_t>(g->shape.size()),
                         g->dtype, access, 0, nullptr, nullptr, nullptr, nullptr, 0, 0, 0});
    return &operands_.back();
  };
  for (size_t i = 0; i < inputs.size(); ++i) inputs_.push_back(describe(inputs[i], updates_input(op, i) ? GALLEY_READ_WRITE : GALLEY_READ));
  for (size_t i = 0; i < outputs.size(); ++i)
    outputs_.push_back(describe(outputs[i], chosen(accumulate, i) ? GALLEY_ACCUMULATE : GALLEY_WRITE));
  view_ = node_view({}, length, inputs_, outputs_, attrs_);
  view_.op = op->name;
  view_.name = name.c_str();
  view_.flags = GALLEY_NODE_TRAINING;
}

}  // namespace galley
