// How models.cpp builds programs: tensors, operands and instructions, then the pieces of a model.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/plan/models.hpp"

namespace galley::models {

inline constexpr uint32_t kSpill = 1;

struct Forward {  ///< what one layer leaves for its backward
  TensorId x, n1, r1, q, k, v, o, lse, x2, n2, r2, gate, up, h;
};

/// Emits one program; used once.
class Builder {
 public:
  explicit Builder(const Spec& spec) : s(spec) {}
  Program run();

 private:
  // --- tensors and operands ---
  TensorId tensor(std::string name, Shape shape, uint32_t dtype, Owner owner, Life life, uint32_t memory = 0) {
    ProgramTensor t;
    t.name = std::move(name);
    t.bytes = elements(shape) * galley_dtype_bytes(dtype);
    t.shape = std::move(shape);
    t.dtype = dtype;
    t.owner = owner;
    t.life = life;
    t.memory = memory;
    p.tensors.push_back(std::move(t));
    return static_cast<TensorId>(p.tensors.size() - 1);
  }
  TensorId active(const std::string& name, Shape shape, Owner owner = Owner::Activations) {
    return tensor(name, std::move(shape), s.activation, owner, Life::Segment);
  }
  Operand all(TensorId id, uint32_t access, uint32_t later = 0) const {
    const ProgramTensor& t = p.tensors[static_cast<size_t>(id)];
    return {id, 0, t.shape, t.dtype, access, later ? later : access, nullptr};
  }
  Operand in(TensorId id) const { return all(id, GALLEY_READ); }
  Operand out(TensorId id) const { return all(id, GALLEY_WRITE); }
  Operand add(TensorId id) const { return all(id, GALLEY_ACCUMULATE); }
  Operand inout(TensorId id) const { return all(id, GALLEY_READ_WRITE); }
  Operand rows(TensorId id, int64_t first, int64_t count, uint32_t access) const {
    Operand o = all(id, access);
    const int64_t row = p.tensors[static_cast<size_t>(id)].bytes / o.shape[0];
    o.offset = first * row;
    o.shape[0] = count;
    return o;
  }
  Operand scalar(size_t slot, uint32_t access = GALLEY_READ) const {
    return {p.scalars, p.slots[slot].offset, {}, p.slots[slot].dtype, access, access, nullptr};
  }

  // --- instructions ---
  Instruction& emit(decltype(Instruction::what) what, std::string name) {
    Instruction& i = code->emplace_back();
    i.what = std::move(what);
    i.name = std::move(name);
    return i;
  }
  void op(const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs, int64_t workspace = 0) {
    TensorId space = no_tensor;
    if (workspace > 0) space = tensor(name + ".workspace", {workspace}, GALLEY_U8, Owner::Workspace, Life::Segment);
    code->push_back(launch_of({name}, std::move(inputs), std::move(outputs)));
    code->back().launch()->workspace = space;
  }
  /// Queue 1 copies after everything that queue 0 has been given so far; the event that says when it is over.
  uint32_t copy(const std::string& name, TensorId from, TensorId to) {
    Instruction& record = emit(Record(), name + ".ready");
    record.event = ++events;
    Instruction& wait = emit(Wait(), name + ".after");
    wait.queue = 1;
    wait.event = events;
    Instruction& i = emit(Copy(), name);
    i.queue = 1;
    i.event = ++events;
    i.inputs = {in(from)};
    i.outputs = {out(to)};
    return events;
  }
  /// A segment begins with a copy of the step image: what the host says of a step.
  void take_image(SegmentKind kind) {
    code = &p.segment(kind).code;
    Instruction& i = emit(Copy(), "step image");
    i.inputs = {in(p.step_image)};
    i.outputs = {out(p.scalars)};
  }
  void wait(uint32_t event) { emit(Wait(), "wait").event = event; }

  // --- pieces of a model ---
  TensorId weight(const std::string& name, Shape shape);
  TensorId used(const std::string& name);
  void linear(const std::string& name, TensorId x, TensorId y, const std::string& w);
  void d_linear(const std::string& name, TensorId dy, TensorId dx, bool adds, TensorId x, const std::string& w);
  TensorId gradient_of(const std::string& w, Operand* operand);
  void contribute(const std::string& name, std::vector<Operand> inputs, const std::string& w);
  void update(const std::string& w, TensorId gradient);
  void load();
  TensorId embed();
  TensorId layer(int64_t l, TensorId x, Forward* kept);
  void backward(int64_t l, Forward f, TensorId* dx);
  void micro();
  void updates();
  void forward_only(SegmentKind kind);

  std::string at(int64_t l, const char* what) const { return "layers." + std::to_string(l) + "." + what + (again ? ".again" : ""); }
  std::string weight_at(int64_t l, const char* what) const { return "layers." + std::to_string(l) + "." + what + ".weight"; }
  int64_t tokens() const { return s.batch * s.length; }
  /// Recompute::Mixed does each of the three in turn.
  bool recomputes(int64_t l, Recompute how) const {
    return s.recompute == how || (s.recompute == Recompute::Mixed && static_cast<Recompute>(l * 7 % 3) == how);
  }
  bool offloads_saved() const { return s.offload == Offload::Saved && s.recompute == Recompute::Nothing; }
  bool trains(const std::string& w) const { return s.training != Training::Lora || w.find("lora") != std::string::npos; }

  const Spec& s;
  Program p;
  std::vector<Instruction>* code = nullptr;
  std::map<std::string, TensorId> weights;
  std::map<std::string, std::vector<TensorId>> states;
  std::map<std::string, TensorId> gradients;
  std::map<TensorId, std::pair<TensorId, uint32_t>> spilled;  ///< saved tensor: where it went, and the event that says so
  uint32_t events = 0;
  bool again = false;  ///< emitting clones of forward for backward
  bool training = false;
  std::vector<std::string> order;  ///< of gradients as backward finishes them
};

}  // namespace galley::models
