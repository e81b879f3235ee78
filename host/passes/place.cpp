#include "host/passes/place.hpp"

#include <algorithm>
#include <deque>

#include "galley/format.h"
#include "galley/op.h"
#include "host/base/printable.hpp"
#include "host/plan/checksums.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

/// For Read and Write: large enough for fast I/O, small enough not to matter.
constexpr int64_t kStagingBytes = 1 << 20;

Owner owner_of(const Graph& graph, const GraphTensor& t) {
  // What is derived from a weight is one.
  if (t.kind == GALLEY_KIND_CONSTANT)
    for (const galley_tensor in : t.initializer_inputs)
      if (graph.tensor(in).parameter_kind()) return Owner::Weights;
  switch (t.kind) {
    case GALLEY_KIND_PARAMETER: return Owner::Weights;
    case GALLEY_KIND_STATE: return Owner::States;
    case GALLEY_KIND_GRADIENT: return Owner::Gradients;
    case GALLEY_KIND_INPUT:
    case GALLEY_KIND_SCALAR:
    case GALLEY_KIND_CONSTANT: return Owner::Data;
    default: return Owner::Activations;
  }
}

int64_t parameter_count(const Graph& graph, bool trainable_only) {
  int64_t n = 0;
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t)
    if (graph.tensor(t).parameter_kind() && (!trainable_only || graph.tensor(t).trainable())) n += graph.tensor(t).count();
  return n;
}

/// What the run must know about the program beside its code.
Status describe(Compilation& c, const Placer& placer) {
  const Graph& graph = c.graph;
  Program& p = c.program;
  p.slots = graph.slots;
  p.scheduled_from = graph.scheduled_from;
  p.scheduled_values = c.target.steps_under_way();
  p.documents = graph.documents;
  p.parameters = parameter_count(graph, false);
  p.trainable = parameter_count(graph, true);
  if (graph.logits) p.vocabulary = graph.tensor(graph.logits).shape.back();
  std::map<std::string, const GraphTensor*> named;
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t) {
    const GraphTensor& x = graph.tensor(t);
    if (x.kind == GALLEY_KIND_INPUT && t != graph.position) p.inputs.emplace_back(x.name, placer.home(t));
    if (x.unused) continue;
    const bool kept = (x.parameter_kind() && x.trainable()) || x.kind == GALLEY_KIND_STATE;
    if (!kept && !x.parameter_kind()) continue;
    for (const TensorId component : placer.components(t)) {
      if (!kept) {
        p.frozen.push_back(component);
        continue;
      }
      const std::string& name = p.tensors[static_cast<size_t>(component)].name;
      if (const auto [first, fresh] = named.try_emplace(name, &x); !fresh)
        return plugin_error("two tensors of the resume state are called '" + name + "': '" + first->second->name + "' and '" + x.name + "'",
                            "a component is called like its tensor, with its format's suffix behind");
      p.resume.emplace_back(name, component);
    }
  }
  for (size_t i = 0; i < c.decisions.trainable.size(); ++i) {
    const GraphTensor& x = graph.tensor(c.decisions.trainable[i]);
    Trained trained;
    trained.name = x.name;
    trained.parameter = placer.home(x.id);
    if (x.gradient) trained.gradient = placer.home(x.gradient);
    if (!c.squares.empty()) trained.sum_squares = placer.in_readback(c.squares[i]);
    trained.flags = x.flags;
    trained.count = x.count();
    p.trained.push_back(std::move(trained));
  }
  return ok();
}

}  // namespace

TensorId Placer::add(ProgramTensor tensor) {
  tensor.bytes = elements(tensor.shape) * galley_dtype_bytes(tensor.dtype);
  program_.tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(program_.tensors.size() - 1);
}

Result<uint32_t> Placer::memory_of(const GraphTensor& t) const {
  if (t.placement.empty()) return 0u;
  for (uint32_t i = 0; i < c_.target.memories.size(); ++i)
    if (c_.target.memories[i].name == t.placement) return i;
  return recipe_error("'" + t.name + "': no memory class '" + t.placement + "'");
}

/// The components of a tensor in a format, or of a piece of it that has this shape.
Result<std::vector<Placer::Component>> Placer::components_of(const GraphTensor& t, const Shape& shape) const {
  const Registered<galley_format> format = c_.plugins.format(t.storage);
  galley_component components[GALLEY_MAX_COMPONENTS];
  galley_component* pointers[GALLEY_MAX_COMPONENTS];
  for (size_t i = 0; i < GALLEY_MAX_COMPONENTS; ++i) {
    components[i] = new_struct<galley_component>();
    components[i].suffix = "";
    pointers[i] = &components[i];
  }
  uint32_t n = 0;
  const auto attrs = t.storage_attrs.view();
  TRY_STATUS(call_plugin(format.caller(), "format '" + t.storage + "' cannot store '" + t.name + "'", [&](galley_error* error) {
    return format.table->components(shape.data(), static_cast<uint32_t>(shape.size()), attrs.data(), static_cast<uint32_t>(attrs.size()),
                                    pointers, &n, error);
  }));
  if (n == 0 || n > GALLEY_MAX_COMPONENTS)
    return plugin_error("format '" + t.storage + "' makes " + std::to_string(n) + " components of '" + t.name + "'");
  for (uint32_t i = 0; i < n; ++i)
    if (!components[i].suffix || components[i].rank > GALLEY_MAX_RANK || !galley_dtype_bytes(components[i].dtype) ||
        components[i].numbers < 0 ||
        std::any_of(components[i].extents, components[i].extents + components[i].rank, [](int64_t extent) { return extent < 0; }))
      return plugin_error("format '" + t.storage + "' of plugin '" + format.plugin->manifest.id + "': component " + std::to_string(i + 1) +
                          " of '" + t.name + "' has no suffix, or a shape or dtype that makes no sense");
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t other = 0; other < i; ++other)
      if (galley_same_text(components[i].suffix, components[other].suffix))
        return plugin_error("format '" + t.storage + "' of plugin '" + format.plugin->manifest.id + "': components " +
                                std::to_string(other + 1) + " and " + std::to_string(i + 1) + " of '" + t.name + "' have one suffix, '" +
                                printable(components[i].suffix, Lines::Escape) + "'",
                            "what is saved of a component is found by it");
  std::vector<Component> out;
  for (uint32_t i = 0; i < n; ++i) {
    ProgramTensor& made = out.emplace_back(Component{{}, components[i].numbers}).tensor;
    made.name = t.name + components[i].suffix;
    made.dtype = components[i].dtype;
    made.shape.assign(components[i].extents, components[i].extents + components[i].rank);
    made.strategy = who(t.use);
  }
  return out;
}

Status Placer::begin(int64_t micro_batches) {
  program_.rows = graph_.rows();
  program_.length = graph_.length();
  program_.micro_batches = micro_batches;
  for (galley_tensor id = 1; id <= graph_.tensor_count(); ++id) {
    const GraphTensor& t = graph_.tensor(id);
    if (t.kind == GALLEY_KIND_TRANSIENT || t.slice_of || t.numbers_of || t.unused) continue;
    const uint32_t memory = TRY(memory_of(t));
    const Life life = t.kind != GALLEY_KIND_GRADIENT ? Life::Run : t.immediate ? Life::Segment : Life::Window;
    if (t.storage.empty()) {
      components_[id] = {add({t.name, t.kept_dtype ? t.kept_dtype : t.dtype, t.shape, 0, memory, owner_of(graph_, t), life, who(t.use)})};
      continue;
    }
    for (auto& [component, numbers] : TRY(components_of(t, t.shape))) {
      component.memory = memory;
      component.owner = owner_of(graph_, t);
      component.life = life;
      components_[id].push_back(add(std::move(component)));
    }
  }
  program_.scalars = home(graph_.scalars);
  const auto host = [&, memory = c_.target.host_memory()](const char* name, int64_t bytes) {
    return add({name, GALLEY_U8, {bytes}, 0, memory, Owner::Data, Life::Run, ""});
  };
  program_.staging = host("staging", kStagingBytes);
  if (steps()) {
    program_.step_image = host("step_image", graph_.host_bytes);
    program_.readback = host("step_readback", graph_.scalar_bytes);
  }
  if (c_.options.window_bytes) program_.window = host("window_buffers", c_.options.window_bytes(micro_batches));
  if (c_.options.corpus_bytes > 0) program_.corpus = host("corpus", c_.options.corpus_bytes);
  return ok();
}

galley_tensor Placer::base(galley_tensor id) const { return tensors_[id].numbers_of ? tensors_[id].numbers_of : id; }

/// Whether its numbers lie where kernels compute, in its dtype.
bool Placer::plain(galley_tensor id) const {
  const GraphTensor& of = tensors_[base(id)];
  return of.placement.empty() && !unpacks(id);
}

Placer::Slot Placer::slot(galley_tensor id) {
  const GraphTensor& t = tensors_[id];
  if (t.slice_of) return {components_.at(t.slice_of).front(), t.slice_offset};
  if (t.kind != GALLEY_KIND_TRANSIENT || handed(id)) return {components_.at(base(id)).front(), 0};
  const auto [it, fresh] = local_.try_emplace(id, no_tensor);
  if (fresh)
    it->second = add({t.name, t.dtype, t.shape, 0, 0, Owner::Activations, outlives_.contains(id) ? Life::Run : Life::Segment, who(t.use)});
  return {it->second, 0};
}

bool Placer::handed(galley_tensor id) const {
  const bool step = kind_ == SegmentKind::Window || kind_ == SegmentKind::Micro || kind_ == SegmentKind::Update;
  return step && components_.contains(id) && tensors_[id].kind == GALLEY_KIND_TRANSIENT;
}

void Placer::window(const std::vector<Item>& items, const std::vector<const std::vector<Item>*>& readers) {
  std::set<galley_tensor> read;
  for (const auto* part : readers)
    for (const Item& item : *part)
      for (const Ref& r : item.inputs) read.insert(r.tensor);
  for (const Item& item : items)
    for (const Ref& r : item.outputs) {
      const GraphTensor* t = r.tensor ? &tensors_[r.tensor] : nullptr;
      if (!t || t->kind != GALLEY_KIND_TRANSIENT || !read.contains(t->id) || components_.contains(t->id)) continue;
      components_[t->id] = {add({t->name, t->dtype, t->shape, 0, 0, Owner::Activations, Life::Run, who(t->use)})};
    }
}

/// What the host says of a step comes into the block.
void Placer::take_image(SegmentKind kind) {
  if (kind != kind_) local_.clear();
  kind_ = kind;
  if (!steps()) return;
  Operand block = all_of(program_.scalars);
  block.shape = {graph_.host_bytes};
  copy(all_of(program_.step_image), block);
}

void Placer::read_back(SegmentKind kind) {
  if (!steps()) return;
  kind_ = kind;
  copy(all_of(program_.scalars), all_of(program_.readback));
}

Operand Placer::in_readback(galley_tensor t) const {
  Operand out;
  out.tensor = program_.readback;
  out.offset = tensors_[t].slice_offset;
  out.shape = tensors_[t].shape;
  out.dtype = tensors_[t].dtype;
  return out;
}

std::vector<TensorId> Placer::transients() const {
  std::vector<TensorId> out(tensors_.count() + 1, no_tensor);
  for (const auto& [t, id] : local_) out[t] = id;
  return out;
}

Result<Operand> Placer::operand(const Ref& ref, const galley_operand_rule* rule) {
  const GraphTensor& t = tensors_[ref.tensor];
  const Slot s = slot(ref.tensor);
  Operand out;
  out.tensor = s.tensor;
  out.offset = s.offset;
  out.dtype = t.dtype;
  out.shape = t.shape;
  if (ref.rows >= 0) {
    const bool one_a_row = (rule && rule->flags & GALLEY_OPERAND_SAME_ROWS) || t.shape.empty();
    const int64_t columns = one_a_row ? 1 : t.shape.back();
    out.offset += ref.row * columns * galley_dtype_bytes(t.dtype);
    out.shape = one_a_row ? Shape{ref.rows} : Shape{ref.rows, columns};
  }
  return out;
}

Result<const galley_op*> Placer::op(const std::string& name, const std::string& needed_by) const {
  if (const galley_op* found = c_.plugins.op(name).table) return found;
  return plugin_error("no plugin provides the op '" + name + "' that '" + needed_by + "' needs");
}

/// A node that the host makes has the operands that it already has; the op's rule has to give its outputs the same shapes and dtypes. A
/// kernel goes by the one and memory by the other.
Status Placer::check_shapes(const galley_op* op, const std::string& name, const std::vector<Operand>& inputs,
                            const std::vector<Operand>& outputs, const AttrList& attrs) const {
  const std::string who = "'" + name + "' (op '" + op->name + "' of plugin '" + caller_of(op, op->name).plugin + "') ";
  if (inputs.size() > op->n_inputs && !(op->n_inputs && op->inputs[op->n_inputs - 1]->flags & GALLEY_OPERAND_VARIADIC))
    return plugin_error(who + "is given " + std::to_string(inputs.size()) + " inputs; the op takes " + std::to_string(op->n_inputs));
  if (outputs.size() != op->n_outputs)
    return plugin_error(who + "is to write " + std::to_string(outputs.size()) + " outputs; the op has " + std::to_string(op->n_outputs));
  std::deque<GraphTensor> described;
  const auto describe = [&](const std::vector<Operand>& operands) {
    std::vector<const GraphTensor*> out;
    for (const Operand& o : operands) {
      GraphTensor& t = described.emplace_back();
      t.name = program_.tensors[static_cast<size_t>(o.tensor)].name;
      t.dtype = o.dtype;
      t.shape = o.shape;
      out.push_back(&t);
    }
    return out;
  };
  const std::vector<const GraphTensor*> in = describe(inputs), out = describe(outputs);
  const NodeDescription description(op, name, in, attrs, out, 0, graph_.length());
  const Result<std::vector<galley_shape>> shapes = infer_shapes(op, description.view());
  if (!shapes) return plugin_error(who + "is not what its op takes: " + shapes.error().cause, shapes.error().hint);
  for (size_t k = 0; k < outputs.size(); ++k) {
    GraphTensor inferred;
    inferred.dtype = (*shapes)[k].dtype;
    inferred.shape.assign((*shapes)[k].extents, (*shapes)[k].extents + (*shapes)[k].rank);
    if (inferred.dtype != out[k]->dtype || inferred.shape != out[k]->shape)
      return plugin_error(who + "writes " + (inferred.dtype ? type_text(inferred) : std::string("nothing")) + " as '" +
                          op->outputs[k]->name + "', but '" + out[k]->name + "' is " + type_text(*out[k]));
  }
  return ok();
}

Status Placer::emit_op(const galley_op* op, const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs,
                       AttrList attrs) {
  TRY_STATUS(check_shapes(op, name, inputs, outputs, attrs));
  Instruction i;
  i.op = op;
  i.name = name;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const galley_operand_rule* rule = input_rule(op, k);
    i.inputs.push_back(with_access(std::move(inputs[k]), rule && rule->flags & GALLEY_OPERAND_INOUT ? GALLEY_READ_WRITE : GALLEY_READ));
  }
  for (Operand& o : outputs) i.outputs.push_back(with_access(std::move(o), GALLEY_WRITE));
  i.attrs = std::move(attrs);
  code().push_back(std::move(i));
  return ok();
}

Status Placer::inputs(const Item& item, const Range& range, Instruction* i, std::vector<StagedInput>* staged) {
  for (size_t k = 0; k < item.inputs.size(); ++k) {
    const Ref& r = item.inputs[k];
    if (!r.tensor) {
      i->inputs.emplace_back();
      continue;
    }
    const galley_operand_rule* rule = input_rule(item.node->op, k);
    const bool inout = rule && rule->flags & GALLEY_OPERAND_INOUT;
    const Range mine = range_for(rule, range);
    if (!plain(r.tensor)) {
      staged->push_back({k, r.tensor, inout, mine, TRY(stage(r.tensor, mine, true))});
      i->inputs.emplace_back();
      continue;
    }
    i->inputs.push_back(with_access(range_of(TRY(operand(r, rule)), mine), inout ? GALLEY_READ_WRITE : GALLEY_READ));
  }
  return ok();
}

Status Placer::outputs(const Item& item, const Range& range, Instruction* i) {
  const GraphNode& node = *item.node;
  for (size_t k = 0; k < item.outputs.size(); ++k) {
    const Ref& r = item.outputs[k];
    if (!r.tensor) {
      i->outputs.emplace_back();
      continue;
    }
    const galley_operand_rule* rule = output_rule(node.op, k);
    const GraphTensor& t = tensors_[r.tensor];
    const bool adds = item.accumulate >> k & 1;
    const Range mine = range_for(rule, range);
    Operand o = t.placement.empty() ? range_of(TRY(operand(r, rule)), mine) : TRY(gradient_here(t.id, mine, adds));
    o.access = o.later = adds ? GALLEY_ACCUMULATE : GALLEY_WRITE;
    if (t.kind == GALLEY_KIND_GRADIENT && kind_ == SegmentKind::Micro && program_.micro_batches > 1) o.later = GALLEY_ACCUMULATE;
    if (o.later == GALLEY_ACCUMULATE && !(rule->flags & GALLEY_OPERAND_ACCUMULATES))
      return plugin_error("op '" + std::string(node.op->name) + "' of '" + node.name + "' cannot add into '" + t.name + "', which it must");
    i->outputs.push_back(std::move(o));
  }
  return ok();
}

Status Placer::emit(const Item& item) {
  const GraphNode& node = *item.node;
  Instruction i;
  i.name = node.name;
  i.strategy = who(node.use);
  i.op = node.op;
  i.attrs = node.attrs;
  i.flags = item.training ? GALLEY_NODE_TRAINING : 0;
  i.first_row = item.first_row;
  i.block = node.block;
  i.flops = TRY(item_cost(graph_, tensors_, item)).flops;
  const Pieces pieces = TRY(pieces_of(item));
  if (!pieces.numbers) return emit(item, {}, std::move(i));
  for (int64_t first = 0; first < pieces.all; first += pieces.numbers) {
    const Range range = {first, std::min(pieces.numbers, pieces.all - first), pieces.rows};
    Instruction piece = i;
    piece.flops *= static_cast<double>(range.count) / static_cast<double>(pieces.all);
    TRY_STATUS(emit(item, range, std::move(piece)));
  }
  return ok();
}

Status Placer::emit(const Item& item, const Range& range, Instruction i) {
  std::vector<StagedInput> staged;
  TRY_STATUS(inputs(item, range, &i, &staged));
  TRY_STATUS(outputs(item, range, &i));
  const std::vector<bool> kept = TRY(keep_formats(&i, staged));
  for (size_t k = 0; k < staged.size(); ++k)
    if (const StagedInput& s = staged[k]; !kept[k])
      i.inputs[s.input] = with_access(TRY(numbers_of(s.tensor, s.range, s.components, true)), s.updated ? GALLEY_READ_WRITE : GALLEY_READ);
  code().push_back(i);
  for (size_t k = 0; k < staged.size(); ++k) {
    const StagedInput& s = staged[k];
    if (!s.updated) continue;
    if (!kept[k]) TRY_STATUS(pack(s.tensor, s.range, i.inputs[s.input], s.components));
    TRY_STATUS(put_back(s.tensor, s.range, s.components));
  }
  for (size_t k = 0; k < item.outputs.size(); ++k)
    if (const galley_tensor t = item.outputs[k].tensor; t && !tensors_[t].placement.empty())
      TRY_STATUS(put_gradient_back(t, range_for(output_rule(item.node->op, k), range), i.outputs[k]));
  return ok();
}

Status Placer::items(SegmentKind kind, const std::vector<Item>& items, std::vector<uint32_t>* begins) {
  if (kind != kind_) local_.clear();
  kind_ = kind;
  for (const Item& item : items) {
    if (begins) begins->push_back(static_cast<uint32_t>(code().size()));
    TRY_STATUS(emit(item));
  }
  return ok();
}

Status Placer::checksums() {
  const auto rows = static_cast<int64_t>(program_.frozen.size() + program_.trained.size());
  program_.checksums = add({"checksums of weights", GALLEY_I32, {rows, 2}, 0, 0, Owner::Data, Life::Run, ""});
  for (const SegmentKind kind : {SegmentKind::Frozen, SegmentKind::Trained}) {
    if (kind == SegmentKind::Trained && !c_.trains()) continue;
    kind_ = kind;
    for (const WeightChecksum& s : weight_checksums(program_, kind))
      if (s.checksum.present())
        TRY_STATUS(
            emit_op(c_.roles.checksum, "checksum of " + program_.tensors[static_cast<size_t>(s.weight)].name, {s.bytes}, {s.checksum}, {}));
  }
  return ok();
}

Status place(Compilation& c) {
  Placer placer(c);
  Program& p = c.program;
  const galley_tensor logits = c.options.keep_logits ? c.graph.logits : 0;
  const int64_t micro_batches = c.options.micro_batches > 0 ? c.options.micro_batches : c.backward() ? c.decisions.micro_batches : 1;
  TRY_STATUS(placer.begin(micro_batches));
  p.window_tokens = micro_batches == c.decisions.micro_batches ? c.decisions.window_tokens : 0;
  TRY_STATUS(placer.load());
  if (c.trains() || c.options.purpose != Purpose::Gradients) TRY_STATUS(placer.refresh(SegmentKind::Refresh));
  if (logits) placer.keep(logits);
  if (c.backward()) {
    placer.window(c.orders.window, {&c.orders.forward, &c.orders.head, &c.orders.backward, &c.orders.update});
    for (const auto* part : {&c.orders.forward, &c.orders.head, &c.orders.backward}) placer.contributions(*part);
    placer.take_image(SegmentKind::Window);
    TRY_STATUS(placer.items(SegmentKind::Window, c.orders.window));
    for (const auto* part : {&c.orders.forward, &c.orders.head, &c.orders.backward})
      TRY_STATUS(placer.items(SegmentKind::Micro, *part, &c.micro.begin));
    c.micro.begin.push_back(static_cast<uint32_t>(p.segment(SegmentKind::Micro).code.size()));
    c.micro.forward = c.orders.forward.size();
    c.micro.head = c.orders.head.size();
    c.micro.tensors = placer.transients();
    if (!c.trains()) placer.read_back(SegmentKind::Update);
  }
  if (logits) p.logits = TRY(placer.locate(logits)).tensor;
  if (c.trains()) {
    TRY_STATUS(placer.items(SegmentKind::Update, c.orders.update));
    TRY_STATUS(placer.refresh(SegmentKind::Update));
    placer.read_back(SegmentKind::Update);
    for (const Reported& reported : c.graph.reports) p.metrics.push_back({reported.name, placer.in_readback(reported.tensor)});
    for (const Stop& stop : c.graph.stops)
      p.stops.push_back({placer.in_readback(stop.tensor), label(c.strategies, stop.use), stop.cause, stop.hint});
  }
  if (c.sample_logits) {
    placer.keep(c.sample_logits);
    placer.take_image(SegmentKind::Sample);
    TRY_STATUS(placer.items(SegmentKind::Sample, c.orders.inference));
    p.sample_logits = TRY(placer.locate(c.sample_logits)).tensor;
    p.sample_position = TRY(placer.locate(c.graph.position)).tensor;
  } else if (!c.orders.inference.empty()) {
    placer.take_image(SegmentKind::Eval);
    TRY_STATUS(placer.items(SegmentKind::Eval, c.orders.inference));
    placer.read_back(SegmentKind::Eval);
  }
  if (c.saves()) TRY_STATUS(placer.export_tensors());
  TRY_STATUS(describe(c, placer));
  if (c.options.purpose != Purpose::Gradients) TRY_STATUS(placer.checksums());
  return ok();
}

}  // namespace galley
