#include "host/passes/place/homes.hpp"

#include <set>

#include "galley/format.h"
#include "host/passes/copy.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

Owner owner_of_tensor(const Graph& graph, const GraphTensor& t) {
  // What is derived from a weight is one.
  if (t.kind == GALLEY_KIND_CONSTANT)
    for (const galley_tensor in : t.initial.inputs)
      if (graph.tensor(in).parameter_kind() || graph.tensor(in).kind == GALLEY_KIND_FILE) return Owner::Weights;
  switch (t.kind) {
    case GALLEY_KIND_PARAMETER: return Owner::Weights;
    case GALLEY_KIND_STATE: return Owner::States;
    case GALLEY_KIND_CACHE: return Owner::Caches;
    case GALLEY_KIND_GRADIENT: return Owner::Gradients;
    case GALLEY_KIND_INPUT:
    case GALLEY_KIND_SCALAR:
    case GALLEY_KIND_CONSTANT: return Owner::Data;
    default: return Owner::Activations;
  }
}

}  // namespace

Shape TensorPiece::shape(const Shape& whole) const {
  if (all() || count == elements(whole)) return whole;
  return rows ? Shape{count / whole.back(), whole.back()} : Shape{count};
}

int64_t TensorPiece::first_row(const Shape& whole) const { return rows ? first / whole.back() : first; }

TensorPiece TensorPiece::of(const galley_operand_rule* rule) const {
  return rule && rule->role == GALLEY_ROLE_ROWS ? *this : TensorPiece();
}

Operand TensorPiece::of(Operand operand) const {
  if (all()) return operand;
  operand.offset += first * galley_dtype_bytes(operand.dtype);
  operand.shape = shape(operand.shape);
  return operand;
}

TensorId add_tensor(Program& program, ProgramTensor tensor) {
  tensor.bytes = elements(tensor.shape) * galley_dtype_bytes(tensor.dtype);
  program.tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(program.tensors.size() - 1);
}

Result<uint32_t> Homes::memory_of(const GraphTensor& t) const {
  if (t.storage.placement.empty()) return 0u;
  for (uint32_t i = 0; i < c_.target.memories.size(); ++i)
    if (c_.target.memories[i].name == t.storage.placement) return i;
  return recipe_error("'" + t.name + "': no memory class '" + t.storage.placement + "'");
}

Status Homes::make() {
  const Graph& graph = c_.graph;
  for (galley_tensor id = 1; id <= graph.tensor_count(); ++id) {
    const GraphTensor& t = graph.tensor(id);
    if (t.kind == GALLEY_KIND_TRANSIENT || t.kind == GALLEY_KIND_FILE || t.slice.of || t.storage.numbers_of || t.unused) continue;
    const uint32_t memory = TRY(memory_of(t));
    const Life life = c_.caches_anew.contains(id)      ? Life::Texts
                      : t.kind != GALLEY_KIND_GRADIENT ? Life::Run
                      : t.immediate                    ? Life::Segment
                                                       : Life::Window;
    std::vector<Component> components = {{"", t.storage.kept_dtype ? t.storage.kept_dtype : t.dtype, t.shape, 1, "", true}};
    if (!t.storage.format.empty()) components = TRY(components_of(c_.plugins, t, t.shape));
    for (const Component& c : components) {
      ProgramTensor home = {t.name + c.suffix, c.dtype, c.shape, 0, memory, owner_of_tensor(graph, t), life, label(c_.strategies, t.use)};
      if (const Cut* cut = c_.cuts.of(id); cut && divides(*cut, c)) divide(t, *cut, c, &home);
      if (t.part) {
        home.whole = t.whole();
        home.runs = t.runs();
        home.neighbours = true;
      }
      components_[id].push_back(add_tensor(c_.program, std::move(home)));
    }
    described_.emplace(id, std::move(components));
  }
  return ok();
}

void Homes::hand_on(const std::vector<Item>& items, const std::vector<const std::vector<Item>*>& readers) {
  std::set<galley_tensor> read;
  for (const auto* part : readers)
    for (const Item& item : *part)
      for (const Ref& r : item.inputs) read.insert(r.tensor);
  for (const Item& item : items)
    for (const Ref& r : item.outputs) {
      const GraphTensor* t = r.tensor ? &tensors_[r.tensor] : nullptr;
      if (!t || t->kind != GALLEY_KIND_TRANSIENT || !read.contains(t->id) || contains(t->id)) continue;
      components_[t->id] = {
          add_tensor(c_.program, {t->name, t->dtype, t->shape, 0, 0, Owner::Activations, Life::Run, label(c_.strategies, t->use)})};
    }
}

void Homes::divide(const GraphTensor& t, const Cut& cut, const Component& component, ProgramTensor* home) const {
  const TensorPiece piece = own(cut);
  home->runs.first = element_at(cut, component, piece.first);
  home->whole = std::move(home->shape);
  if (piece.count == t.count()) home->shape = home->whole;
  else if (t.storage.format.empty()) home->shape = piece.shape(t.shape);
  else home->shape = {element_at(cut, component, piece.first + piece.count) - home->runs.first};
}

Homes::Place Homes::place(galley_tensor id) const {
  const GraphTensor& t = tensors_[id];
  if (t.slice.of) return {home(t.slice.of), t.slice.offset};
  return {components(base(id))[t.storage.component.value_or(0)], 0};
}

Operand Homes::operand(galley_tensor id, Place at) const {
  Operand out;
  out.tensor = at.tensor;
  out.offset = at.offset;
  out.dtype = tensors_[id].dtype;
  out.shape = tensors_[id].shape;
  return out;
}

Result<std::vector<Operand>> Homes::operands(galley_tensor id, const TensorPiece& piece) const {
  const GraphTensor& of = tensors_[base(id)];
  std::vector<Operand> out;
  for (const TensorId c : components(of.id)) out.push_back(all_of(c_.program.tensors, c));
  if (piece.all()) return out;
  const auto begin = [&](const Operand& o, int64_t element) { return (element - made(o.tensor).runs.first) * galley_dtype_bytes(o.dtype); };
  if (of.storage.format.empty()) {
    out.front().offset = begin(out.front(), piece.first);
    out.front().shape = piece.shape(of.shape);
    return out;
  }
  const std::vector<Component> pieces = TRY(components_of(c_.plugins, of, piece.shape(of.shape)));
  for (size_t k = 0; k < out.size(); ++k) {
    if (piece.first) out[k].offset = begin(out[k], piece.first / pieces[k].numbers);
    out[k].shape = pieces[k].shape;
  }
  return out;
}

Operand Homes::in_readback(galley_tensor t) const { return operand(t, {c_.program.readback, tensors_[t].slice.offset}); }

bool Homes::unpacks(galley_tensor id) const {
  const GraphTensor &t = tensors_[id], &of = tensors_[base(id)];
  if (t.storage.component) return false;
  if (of.storage.format.empty()) return t.dtype != (of.storage.kept_dtype ? of.storage.kept_dtype : of.dtype);
  constexpr uint64_t readable = GALLEY_FORMAT_PLAIN | GALLEY_FORMAT_ROUNDED;
  return !(c_.plugins.format(of.storage.format).table->flags & readable) || made(home(of.id)).dtype != t.dtype;
}

}  // namespace galley
