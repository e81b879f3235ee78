#include "tests/plan/models.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

namespace galley::models {
namespace {

constexpr uint32_t kSpill = 1;

struct Forward {   ///< what one layer leaves for its backward
  TensorId x, n1, r1, q, k, v, o, lse, x2, n2, r2, gate, up, h;
};

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
    return {id, 0, t.shape, t.dtype, access, later ? later : access};
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
    return {p.scalars, p.slots[slot].offset, {}, p.slots[slot].dtype, access, access};
  }

  // --- instructions ---
  Instruction& emit(Action action, std::string name) {
    Instruction i;
    i.action = action;
    i.name = std::move(name);
    code->push_back(std::move(i));
    return code->back();
  }
  void op(const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs, int64_t workspace = 0) {
    TensorId space = no_tensor;
    if (workspace > 0) space = tensor(name + ".workspace", {workspace}, GALLEY_U8, Owner::Workspace, Life::Segment);
    Instruction& i = emit(Action::Kernel, name);
    i.inputs = std::move(inputs);
    i.outputs = std::move(outputs);
    i.workspace = space;
  }
  /// Queue 1 copies after everything that queue 0 has been given so far; the event that says when it is over.
  uint32_t copy(const std::string& name, TensorId from, TensorId to) {
    Instruction& record = emit(Action::Record, name + ".ready");
    record.event = ++events;
    Instruction& wait = emit(Action::Wait, name + ".after");
    wait.queue = 1;
    wait.event = events;
    Instruction& i = emit(Action::Copy, name);
    i.queue = 1;
    i.event = ++events;
    i.inputs = {in(from)};
    i.outputs = {out(to)};
    return events;
  }
  void wait(uint32_t event) {
    emit(Action::Wait, "wait").event = event;
  }

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
  std::map<TensorId, std::pair<TensorId, uint32_t>> spilled;   ///< saved tensor: where it went, and the event that says so
  uint32_t events = 0;
  bool again = false;      ///< emitting clones of forward for backward
  bool training = false;
  std::vector<std::string> order;   ///< of gradients as backward finishes them
};

TensorId Builder::weight(const std::string& name, Shape shape) {
  const uint32_t dtype = s.quantized && !trains(name) && shape.size() > 1 ? GALLEY_U8 : trains(name) ? GALLEY_F32 : s.activation;
  if (dtype == GALLEY_U8) shape.back() = std::max<int64_t>(1, shape.back() / 2);
  const TensorId id = tensor(name, std::move(shape), dtype, Owner::Weights, Life::Run);
  weights[name] = id;
  if (!trains(name)) return id;
  const Shape full = p.tensors[static_cast<size_t>(id)].shape;
  const uint32_t memory = s.offload == Offload::States ? kSpill : 0;
  auto state = [&](const char* what, Shape of) {
    states[name].push_back(tensor(name + what, std::move(of), GALLEY_F32, Owner::States, Life::Run, memory));
  };
  if (s.optimizer == Optimizer::Factored && full.size() == 2) {
    state(".rows", {full[0]});
    state(".columns", {full[1]});
  } else {
    state(".m", full);
    if (s.optimizer == Optimizer::Adam) state(".v", full);
  }
  return id;
}

/// The tensor that a product reads for weight `name`: the weight, or what unpacking or a cast makes of it just before.
TensorId Builder::used(const std::string& name) {
  const TensorId id = weights.at(name);
  const ProgramTensor& t = p.tensors[static_cast<size_t>(id)];
  const bool packed = t.dtype == GALLEY_U8;
  if (!packed && !(s.mixed && t.dtype != GALLEY_BF16)) return id;
  Shape shape = t.shape;
  if (packed) shape.back() *= 2;
  const TensorId cast = tensor(name + ".bf16." + std::to_string(p.tensors.size()), shape, GALLEY_BF16, Owner::Activations, Life::Segment);
  op(name + (packed ? ".unpack" : ".cast"), {in(id)}, {out(cast)});
  return cast;
}

void Builder::linear(const std::string& name, TensorId x, TensorId y, const std::string& w) {
  const TensorId matrix = used(w);
  op(name, {in(x), in(matrix)}, {out(y)}, elements(p.tensors[static_cast<size_t>(y)].shape) / 3);
  if (s.training != Training::Lora || !weights.contains(w + ".lora_a")) return;
  const TensorId small = active(name + ".lora", {tokens(), s.rank}, Owner::Saved);
  op(name + ".lora_a", {in(x), in(weights.at(w + ".lora_a"))}, {out(small)});
  op(name + ".lora_b", {in(small), in(weights.at(w + ".lora_b"))}, {add(y)});
}

TensorId Builder::gradient_of(const std::string& w, Operand* operand) {
  const ProgramTensor& t = p.tensors[static_cast<size_t>(weights.at(w))];
  const bool immediate = s.training == Training::InBackward;
  const auto found = gradients.find(w);
  const bool first = found == gradients.end();
  if (first) gradients[w] = tensor(w + ".grad", Shape(t.shape), GALLEY_F32, Owner::Gradients, immediate ? Life::Segment : Life::Window);
  const TensorId id = gradients.at(w);
  *operand = all(id, first ? GALLEY_WRITE : GALLEY_ACCUMULATE, immediate && first ? GALLEY_WRITE : GALLEY_ACCUMULATE);
  return id;
}

void Builder::contribute(const std::string& name, std::vector<Operand> inputs, const std::string& w) {
  if (!trains(w)) return;
  Operand target;
  gradient_of(w, &target);
  const int64_t workspace = target.bytes() / 5;
  op(name, std::move(inputs), {target}, workspace);
  if (std::find(order.begin(), order.end(), w) == order.end()) order.push_back(w);
  if (s.training == Training::InBackward && !(s.tied && w == "embed.weight" && name.find("head") != std::string::npos)) {
    const bool last_chunk = name.find("head") == std::string::npos || name.ends_with("." + std::to_string(s.chunks - 1));
    if (last_chunk) update(w, gradients.at(w));
  }
}

void Builder::d_linear(const std::string& name, TensorId dy, TensorId dx, bool adds, TensorId x, const std::string& w) {
  if (dx != no_tensor) {
    const TensorId matrix = used(w);
    op(name + ".dx", {in(dy), in(matrix)}, {adds ? add(dx) : out(dx)}, elements(p.tensors[static_cast<size_t>(dy)].shape) / 4);
  }
  contribute(name + ".dw", {in(dy), in(x)}, w);
  if (s.training != Training::Lora || !weights.contains(w + ".lora_a")) return;
  // The small product is recomputed: a LoRA node keeps its input only.
  const TensorId small = active(name + ".lora_again", {tokens(), s.rank});
  const TensorId d_small = active(name + ".lora_d", {tokens(), s.rank});
  op(name + ".lora_small", {in(x), in(weights.at(w + ".lora_a"))}, {out(small)});
  contribute(name + ".lora_db", {in(dy), in(small)}, w + ".lora_b");
  op(name + ".lora_ds", {in(dy), in(weights.at(w + ".lora_b"))}, {out(d_small)});
  contribute(name + ".lora_da", {in(d_small), in(x)}, w + ".lora_a");
  if (dx != no_tensor) op(name + ".lora_dx", {in(d_small), in(weights.at(w + ".lora_a"))}, {add(dx)});
}

void Builder::update(const std::string& w, TensorId gradient) {
  const TensorId weight = weights.at(w);
  const Shape shape = p.tensors[static_cast<size_t>(weight)].shape;
  std::vector<Operand> operands = {in(gradient), scalar(1), inout(weight)};
  if (s.offload == Offload::States) {
    // Chunks of rows come in, are stepped, and go back; two are under way at a time.
    const int64_t parts = std::min<int64_t>(shape[0], 4);
    std::vector<uint32_t> back;
    for (int64_t c = 0; c < parts; ++c) {
      const int64_t begin = shape[0] * c / parts, count = shape[0] * (c + 1) / parts - begin;
      std::vector<Operand> chunk = {rows(gradient, begin, count, GALLEY_READ), scalar(1), rows(weight, begin, count, GALLEY_READ_WRITE)};
      std::vector<std::pair<TensorId, Operand>> moved;
      for (const TensorId state : states.at(w)) {
        const std::string name = p.tensors[static_cast<size_t>(state)].name;
        const bool split = p.tensors[static_cast<size_t>(state)].shape == shape;
        Operand home = split ? rows(state, begin, count, GALLEY_READ) : in(state);
        const TensorId here = tensor(name + ".here." + std::to_string(c), Shape(home.shape), GALLEY_F32, Owner::States, Life::Segment);
        const uint32_t event = copy(name + ".in", state, here);
        code->back().inputs = {home};
        wait(event);
        chunk.push_back(inout(here));
        moved.emplace_back(here, home);
      }
      op(w + ".step." + std::to_string(c), std::move(chunk), {});
      for (auto& [here, home] : moved) {
        const uint32_t event = copy(w + ".out", here, home.tensor);
        Operand to = home;
        to.access = to.later = GALLEY_WRITE;
        code->back().outputs = {to};
        back.push_back(event);
      }
      // Factored states are whole in every chunk, and so are their copies.
      while (back.size() > (s.optimizer == Optimizer::Factored ? 0u : moved.size())) {
        wait(back.front());
        back.erase(back.begin());
      }
    }
    for (const uint32_t event : back) wait(event);
    return;
  }
  for (const TensorId state : states.at(w)) operands.push_back(inout(state));
  if (s.optimizer == Optimizer::Muon && shape.size() == 2) {
    const int64_t n = std::min(shape[0], shape[1]);
    auto number = [&](const char* what) { return tensor(w + what, Shape(shape), GALLEY_BF16, Owner::Activations, Life::Segment); };
    TensorId x = number(".x");
    op(w + ".momentum", {in(gradient), inout(states.at(w)[0])}, {out(x)});
    for (int round = 0; round < 3; ++round) {
      const TensorId a = tensor(w + ".a" + std::to_string(round), {n, n}, GALLEY_BF16, Owner::Activations, Life::Segment);
      const TensorId b = tensor(w + ".b" + std::to_string(round), {n, n}, GALLEY_BF16, Owner::Activations, Life::Segment);
      const TensorId y = number((".y" + std::to_string(round)).c_str());
      op(w + ".xx", {in(x)}, {out(a)}, n * 64);
      op(w + ".aa", {in(a)}, {out(b)}, n * 64);
      op(w + ".bx", {in(b), in(x)}, {out(y)}, n * 64);
      x = y;
    }
    op(w + ".step", {in(x), scalar(1), inout(weight)}, {});
    return;
  }
  op(w + ".step", std::move(operands), {});
}

void Builder::load() {
  code = &p.segment(SegmentKind::Load).code;
  for (const auto& [name, id] : weights) {
    if (trains(name) && s.training == Training::Lora) {
      op(name + ".init", {scalar(0)}, {out(id)});
    } else if (p.tensors[static_cast<size_t>(id)].dtype == GALLEY_U8) {
      Shape shape = p.tensors[static_cast<size_t>(id)].shape;
      shape.back() *= 2;
      const TensorId wide = tensor(name + ".f32", shape, GALLEY_F32, Owner::Activations, Life::Segment);
      Instruction& read = emit(Action::Read, name);
      read.outputs = {out(wide), out(p.staging)};
      op(name + ".pack", {in(wide)}, {out(id)});
    } else {
      Instruction& read = emit(Action::Read, name);
      read.outputs = {out(id), out(p.staging)};
    }
  }
  for (const auto& [name, list] : states)
    for (const TensorId state : list) {
      if (p.tensors[static_cast<size_t>(state)].memory == 0) {
        op(p.tensors[static_cast<size_t>(state)].name + ".zero", {}, {out(state)});
        continue;
      }
      const Shape shape = p.tensors[static_cast<size_t>(state)].shape;
      const TensorId zero = tensor(name + ".zeros", Shape(shape), GALLEY_F32, Owner::Activations, Life::Segment);
      op(name + ".zero", {}, {out(zero)});
      wait(copy(name + ".spill", zero, state));
    }
}

TensorId Builder::embed() {
  const TensorId x = active(again ? "x.again" : "x", {tokens(), s.width}, Owner::Saved);
  op("embed", {in(p.inputs[0].second), in(weights.at("embed.weight"))}, {out(x)});
  return x;
}

TensorId Builder::layer(int64_t l, TensorId x, Forward* f) {
  const int64_t n = tokens();
  auto wide = [&](const char* name, int64_t width, Owner owner = Owner::Saved) { return active(at(l, name), {n, width}, owner); };
  auto number = [&](const char* name, int64_t count) { return tensor(at(l, name), {n * count}, GALLEY_F32, Owner::Saved, Life::Segment); };
  f->x = x;
  f->n1 = wide("n1", s.width);
  f->r1 = number("r1", s.gated ? 1 : 2);
  op(at(l, "norm1"), {in(x), in(weights.at(weight_at(l, "norm1")))}, {out(f->n1), out(f->r1)});
  const TensorId q = wide("q_raw", s.width, Owner::Activations), k = wide("k_raw", s.kv_width, Owner::Activations);
  f->v = wide("v", s.kv_width);
  linear(at(l, "q"), f->n1, q, weight_at(l, "q"));
  linear(at(l, "k"), f->n1, k, weight_at(l, "k"));
  linear(at(l, "v"), f->n1, f->v, weight_at(l, "v"));
  if (s.gated) {
    f->q = wide("q_rope", s.width);
    f->k = wide("k_rope", s.kv_width);
    op(at(l, "rope_q"), {in(q), in(p.inputs[1].second)}, {out(f->q)});
    op(at(l, "rope_k"), {in(k), in(p.inputs[1].second)}, {out(f->k)});
  } else {
    f->q = q;
    f->k = k;
  }
  f->o = wide("o", s.width);
  f->lse = number("lse", s.heads);
  op(at(l, "attention"), {in(f->q), in(f->k), in(f->v), in(p.inputs[3].second)}, {out(f->o), out(f->lse)}, n * s.heads * 8);
  const TensorId proj = wide("proj", s.width, Owner::Activations);
  linear(at(l, "o_proj"), f->o, proj, weight_at(l, "o"));
  f->x2 = wide("x2", s.width);
  op(at(l, "add1"), {in(x), in(proj)}, {out(f->x2)});
  f->n2 = wide("n2", s.width);
  f->r2 = number("r2", s.gated ? 1 : 2);
  op(at(l, "norm2"), {in(f->x2), in(weights.at(weight_at(l, "norm2")))}, {out(f->n2), out(f->r2)});
  f->gate = wide("gate", s.hidden);
  linear(at(l, "gate"), f->n2, f->gate, weight_at(l, "gate"));
  f->up = no_tensor;
  if (s.gated) {
    f->up = wide("up", s.hidden);
    linear(at(l, "up"), f->n2, f->up, weight_at(l, "up"));
  }
  f->h = wide("h", s.hidden);
  std::vector<Operand> inputs = {in(f->gate)};
  if (s.gated) inputs.push_back(in(f->up));
  op(at(l, "act"), inputs, {out(f->h)});
  const TensorId down = wide("down", s.width, Owner::Activations);
  linear(at(l, "down"), f->h, down, weight_at(l, "down"));
  const TensorId y = wide("y", s.width);
  op(at(l, "add2"), {in(f->x2), in(down)}, {out(y)});
  if (training && offloads_saved()) {
    for (const TensorId saved : {f->n1, f->h}) {
      const ProgramTensor t = p.tensors[static_cast<size_t>(saved)];
      const TensorId away = tensor(t.name + ".away", Shape(t.shape), t.dtype, Owner::Saved, Life::Segment, kSpill);
      const uint32_t event = copy(t.name + ".offload", saved, away);
      spilled[saved] = {away, event};
    }
    // Queue 0 learns that a layer's copies are over when the next layer has run.
    if (l > 0)
      for (const auto& [saved, where] : spilled)
        if (p.tensors[static_cast<size_t>(saved)].name.starts_with("layers." + std::to_string(l - 1) + ".")) wait(where.second);
  }
  return y;
}

void Builder::backward(int64_t l, Forward f, TensorId* dx) {
  const int64_t n = tokens();
  if (recomputes(l, Recompute::Blocks)) {
    again = true;
    Forward fresh;
    layer(l, f.x, &fresh);
    // The last products of the clone are needed by nobody.
    while (!code->empty() && code->back().name != at(l, "act")) code->pop_back();
    f = fresh;
    again = false;
  } else if (recomputes(l, Recompute::Cheap)) {
    const TensorId n1 = active(at(l, "n1.again"), {n, s.width}), n2 = active(at(l, "n2.again"), {n, s.width}), h = active(at(l, "h.again"), {n, s.hidden});
    op(at(l, "norm1.again"), {in(f.x), in(weights.at(weight_at(l, "norm1")))}, {out(n1)});
    op(at(l, "norm2.again"), {in(f.x2), in(weights.at(weight_at(l, "norm2")))}, {out(n2)});
    std::vector<Operand> inputs = {in(f.gate)};
    if (s.gated) inputs.push_back(in(f.up));
    op(at(l, "act.again"), inputs, {out(h)});
    f.n1 = n1;
    f.n2 = n2;
    f.h = h;
  } else if (offloads_saved()) {
    for (TensorId* saved : {&f.h, &f.n1}) {
      const auto& [away, event] = spilled.at(*saved);
      const ProgramTensor t = p.tensors[static_cast<size_t>(*saved)];
      const TensorId back = active(t.name + ".back", Shape(t.shape), Owner::Saved);
      wait(event);
      const uint32_t done = copy(t.name + ".prefetch", away, back);
      if (saved == &f.h) wait(done);
      else spilled[back] = {away, done};
      *saved = back;
    }
  }
  auto grad = [&](const char* name, int64_t width) { return active(at(l, name), {n, width}); };
  const TensorId dh = grad("dh", s.hidden), dgate = grad("dgate", s.hidden), dup = s.gated ? grad("dup", s.hidden) : no_tensor, dn2 = grad("dn2", s.width);
  d_linear(at(l, "down"), *dx, dh, false, f.h, weight_at(l, "down"));
  std::vector<Operand> ins = {in(dh), in(f.gate)}, outs = {out(dgate)};
  if (s.gated) {
    ins.push_back(in(f.up));
    outs.push_back(out(dup));
  }
  op(at(l, "act.d"), ins, outs);
  d_linear(at(l, "gate"), dgate, dn2, false, f.n2, weight_at(l, "gate"));
  if (s.gated) d_linear(at(l, "up"), dup, dn2, true, f.n2, weight_at(l, "up"));
  const TensorId dx2 = grad("dx2", s.width);
  op(at(l, "norm2.d"), {in(dn2), in(f.x2), in(f.r2), in(*dx)}, {out(dx2)});
  contribute(at(l, "norm2.dw"), {in(dn2), in(f.x2), in(f.r2)}, weight_at(l, "norm2"));
  const TensorId d_o = grad("do", s.width), dq = grad("dq", s.width), dk = grad("dk", s.kv_width), dv = grad("dv", s.kv_width), dn1 = grad("dn1", s.width);
  d_linear(at(l, "o"), dx2, d_o, false, f.o, weight_at(l, "o"));
  op(at(l, "attention.d"), {in(d_o), in(f.q), in(f.k), in(f.v), in(f.o), in(f.lse)}, {out(dq), out(dk), out(dv)}, n * s.heads * 16);
  if (s.gated) {
    op(at(l, "rope_q.d"), {inout(dq), in(p.inputs[1].second)}, {});
    op(at(l, "rope_k.d"), {inout(dk), in(p.inputs[1].second)}, {});
  }
  if (offloads_saved()) wait(spilled.at(f.n1).second);
  d_linear(at(l, "q"), dq, dn1, false, f.n1, weight_at(l, "q"));
  d_linear(at(l, "k"), dk, dn1, true, f.n1, weight_at(l, "k"));
  d_linear(at(l, "v"), dv, dn1, true, f.n1, weight_at(l, "v"));
  const TensorId next = grad("dx", s.width);
  op(at(l, "norm1.d"), {in(dn1), in(f.x), in(f.r1), in(dx2)}, {out(next)});
  contribute(at(l, "norm1.dw"), {in(dn1), in(f.x), in(f.r1)}, weight_at(l, "norm1"));
  *dx = next;
}

void Builder::micro() {
  code = &p.segment(SegmentKind::Micro).code;
  training = true;
  std::vector<Forward> kept(static_cast<size_t>(s.layers));
  TensorId x = embed();
  for (int64_t l = 0; l < s.layers; ++l) x = layer(l, x, &kept[static_cast<size_t>(l)]);
  training = false;
  const int64_t n = tokens();
  const TensorId nf = active("final_norm", {n, s.width}, Owner::Saved), rf = tensor("final_rstd", {n}, GALLEY_F32, Owner::Saved, Life::Segment);
  op("norm", {in(x), in(weights.at("norm.weight"))}, {out(nf), out(rf)});
  const std::string head = s.tied ? "embed.weight" : "head.weight";
  TensorId dnf = active("final_norm.d", {n, s.width});
  for (int64_t c = 0; c < s.chunks; ++c) {
    const int64_t begin = n * c / s.chunks, count = n * (c + 1) / s.chunks - begin;
    const std::string suffix = "." + std::to_string(c);
    const TensorId logits = active("logits" + suffix, {count, s.vocabulary}), lse = tensor("loss.lse" + suffix, {count}, GALLEY_F32, Owner::Saved, Life::Segment);
    TensorId matrix = used(head);
    op("head" + suffix, {rows(nf, begin, count, GALLEY_READ), in(matrix)}, {out(logits)}, count * 64);
    op("loss" + suffix, {in(logits), rows(p.inputs[2].second, begin, count, GALLEY_READ)}, {out(lse), scalar(2, GALLEY_ACCUMULATE)});
    op("loss.d" + suffix, {inout(logits), in(lse), scalar(3)}, {});
    matrix = used(head);
    op("head.dx" + suffix, {in(logits), in(matrix)}, {rows(dnf, begin, count, GALLEY_WRITE)}, count * 32);
    contribute("head.dw" + suffix, {in(logits), rows(nf, begin, count, GALLEY_READ)}, head);
  }
  TensorId dx = active("x.d", {n, s.width});
  op("norm.d", {in(dnf), in(x), in(rf)}, {out(dx)});
  contribute("norm.dw", {in(dnf), in(x), in(rf)}, "norm.weight");
  for (int64_t l = s.layers; l-- > 0;) backward(l, kept[static_cast<size_t>(l)], &dx);
  contribute("embed.d", {in(dx), in(p.inputs[0].second)}, "embed.weight");
}

void Builder::updates() {
  code = &p.segment(SegmentKind::Update).code;
  if (s.training == Training::InBackward) return;
  std::vector<Operand> sums;
  for (const std::string& w : order) {
    const TensorId sum = tensor(w + ".squares", {1}, GALLEY_F64, Owner::Activations, Life::Segment);
    op(w + ".squares", {in(gradients.at(w))}, {out(sum)});
    Trained trained;
    trained.name = w;
    trained.parameter = weights.at(w);
    trained.gradient = gradients.at(w);
    trained.sum_squares = in(sum);
    p.trained.push_back(trained);
    sums.push_back(in(sum));
  }
  op("norm_finish", sums, {scalar(4, GALLEY_WRITE)});
  for (const auto& [w, id] : weights)
    if (gradients.contains(w)) update(w, gradients.at(w));
}

void Builder::forward_only(SegmentKind kind) {
  code = &p.segment(kind).code;
  Forward kept;
  TensorId x = embed();
  for (int64_t l = 0; l < s.layers; ++l) x = layer(l, x, &kept);
  const TensorId nf = active("final_norm", {tokens(), s.width});
  op("norm", {in(x), in(weights.at("norm.weight"))}, {out(nf)});
  if (kind == SegmentKind::Sample) {
    op("head", {in(nf), in(weights.at("embed.weight")), in(p.sample_position)}, {out(p.sample_logits)});
    return;
  }
  const TensorId logits = active("logits", {tokens() / s.chunks, s.vocabulary});
  for (int64_t c = 0; c < s.chunks; ++c) {
    op("head", {rows(nf, c * (tokens() / s.chunks), tokens() / s.chunks, GALLEY_READ), in(weights.at("embed.weight"))}, {out(logits)});
    op("loss", {in(logits), in(p.inputs[2].second)}, {scalar(2, GALLEY_ACCUMULATE)});
  }
}

Program Builder::run() {
  p.rows = s.batch;
  p.length = s.length;
  p.micro_batches = s.micro_batches;
  p.scalars = tensor("scalars", {256}, GALLEY_U8, Owner::Data, Life::Run);
  for (uint32_t i = 0; i < 5; ++i) {
    ScalarSlot slot;
    slot.which = i + 1;
    slot.offset = 8 * i;
    slot.bytes = 8;
    slot.dtype = GALLEY_F64;
    p.slots.push_back(slot);
  }
  for (const char* name : {"input_ids", "position_ids", "labels", "first_key"})
    p.inputs.emplace_back(name, tensor(name, {tokens()}, GALLEY_I32, Owner::Data, Life::Run));
  p.window = tensor("window", {2 * s.micro_batches * tokens() * 4}, GALLEY_U8, Owner::Data, Life::Run);
  p.corpus = tensor("corpus", {0}, GALLEY_U8, Owner::Data, Life::Run);
  p.staging = tensor("staging", {1 << 16}, GALLEY_U8, Owner::Data, Life::Run);
  p.sample_position = tensor("sample_position", {1}, GALLEY_I32, Owner::Data, Life::Run);
  p.sample_logits = tensor("sample_logits", {1, s.vocabulary}, GALLEY_F32, Owner::Data, Life::Segment);

  weight("embed.weight", {s.vocabulary, s.width});
  for (int64_t l = 0; l < s.layers; ++l) {
    auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
      const std::string w = weight_at(l, name);
      weight(w, {rows, columns});
      if (s.training != Training::Lora) return;
      weight(w + ".lora_a", {s.rank, columns});
      weight(w + ".lora_b", {rows, s.rank});
    };
    weight(weight_at(l, "norm1"), {s.width});
    matrix("q", s.width, s.width);
    matrix("k", s.kv_width, s.width);
    matrix("v", s.kv_width, s.width);
    matrix("o", s.width, s.width);
    weight(weight_at(l, "norm2"), {s.width});
    matrix("gate", s.hidden, s.width);
    if (s.gated) matrix("up", s.hidden, s.width);
    matrix("down", s.width, s.hidden);
  }
  weight("norm.weight", {s.width});
  if (!s.tied) weight("head.weight", {s.vocabulary, s.width});

  load();
  micro();
  updates();
  if (s.evaluates) forward_only(SegmentKind::Eval);
  if (s.samples) forward_only(SegmentKind::Sample);
  code = &p.segment(SegmentKind::Export).code;
  for (const auto& [name, id] : weights) {
    if (s.training == Training::Lora && !trains(name)) continue;
    Instruction& write = emit(Action::Write, name);
    write.inputs = {in(id)};
    write.outputs = {out(p.staging)};
  }
  return std::move(p);
}

}  // namespace

Spec random_spec(uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + 17);
  auto pick = [&](std::initializer_list<int64_t> of) { return of.begin()[random() % of.size()]; };
  auto chance = [&](uint64_t in) { return random() % in == 0; };
  Spec s;
  s.layers = pick({1, 2, 3, 4, 6, 8, 12, 16});
  s.batch = pick({1, 2, 3, 4, 8});
  s.length = pick({16, 48, 64, 100, 128, 256});
  s.heads = pick({1, 2, 4, 8});
  s.width = s.heads * pick({8, 16, 32, 64});
  s.kv_width = s.width / pick({1, 1, 2, 4});
  s.gated = !chance(3);
  s.hidden = s.gated ? s.width * 8 / 3 + pick({0, 1, 3, 8}) : s.width * 4;
  s.vocabulary = pick({97, 256, 1000, 4096, 32000, 50257});
  s.rank = pick({1, 4, 8, 16});
  s.chunks = pick({1, 1, 2, 4, 8});
  s.micro_batches = pick({1, 1, 2, 4});
  s.tied = chance(3);
  s.training = static_cast<Training>(random() % 3);
  if (s.training == Training::InBackward) s.micro_batches = 1;
  s.quantized = s.training == Training::Lora && chance(2);
  s.activation = s.quantized || chance(2) ? GALLEY_BF16 : GALLEY_F32;
  s.mixed = s.activation == GALLEY_BF16;
  s.recompute = static_cast<Recompute>(random() % 4);
  s.offload = static_cast<Offload>(random() % 3);
  s.optimizer = static_cast<Optimizer>(random() % 4);
  s.evaluates = !chance(3);
  s.samples = chance(2);
  return s;
}

Spec seven_billion() {
  Spec s;
  s.layers = 32;
  s.batch = 1;
  s.length = 2048;
  s.width = s.kv_width = 4096;
  s.hidden = 11008;
  s.heads = 32;
  s.vocabulary = 32000;
  s.chunks = 8;
  s.activation = GALLEY_BF16;
  s.mixed = true;
  return s;
}

Program build(const Spec& spec) { return Builder(spec).run(); }

std::string text(const Spec& s) {
  auto n = [](auto v) { return std::to_string(static_cast<int64_t>(v)); };
  return n(s.layers) + " layers, " + n(s.batch) + " x " + n(s.length) + ", width " + n(s.width) + "/" + n(s.kv_width) + "/" + n(s.hidden) + ", vocabulary " + n(s.vocabulary) +
         ", chunks " + n(s.chunks) + ", micro-batches " + n(s.micro_batches) + ", training " + n(s.training) + ", recompute " + n(s.recompute) + ", offload " + n(s.offload) +
         ", optimizer " + n(s.optimizer) + (s.gated ? ", gated" : "") + (s.tied ? ", tied" : "") + (s.quantized ? ", quantized" : "") + (s.mixed ? ", mixed" : "");
}

Target two_classes() {
  Target target;
  target.queues = 2;
  target.memories = {{"host", 64, true, true}, {"spill", 4096, true, false}};
  return target;
}

}  // namespace galley::models
