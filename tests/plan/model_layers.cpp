// Forward and backward of a transformer, as differentiation and scheduling would put them in a row.
#include "tests/plan/model_builder.hpp"

namespace galley::models {

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

TensorId Builder::embed() {
  const TensorId x = active(again ? "x.again" : "x", {tokens(), s.width}, Owner::Saved);
  op("embed", {in(p.inputs[0].tensor), in(weights.at("embed.weight"))}, {out(x)});
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
    op(at(l, "rope_q"), {in(q), in(p.inputs[1].tensor)}, {out(f->q)});
    op(at(l, "rope_k"), {in(k), in(p.inputs[1].tensor)}, {out(f->k)});
  } else {
    f->q = q;
    f->k = k;
  }
  f->o = wide("o", s.width);
  f->lse = number("lse", s.heads);
  op(at(l, "attention"), {in(f->q), in(f->k), in(f->v), in(p.inputs[3].tensor)}, {out(f->o), out(f->lse)}, n * s.heads * 8);
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
    const TensorId n1 = active(at(l, "n1.again"), {n, s.width}), n2 = active(at(l, "n2.again"), {n, s.width}),
                   h = active(at(l, "h.again"), {n, s.hidden});
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
  const TensorId dh = grad("dh", s.hidden), dgate = grad("dgate", s.hidden), dup = s.gated ? grad("dup", s.hidden) : no_tensor,
                 dn2 = grad("dn2", s.width);
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
  const TensorId d_o = grad("do", s.width), dq = grad("dq", s.width), dk = grad("dk", s.kv_width), dv = grad("dv", s.kv_width),
                 dn1 = grad("dn1", s.width);
  d_linear(at(l, "o"), dx2, d_o, false, f.o, weight_at(l, "o"));
  op(at(l, "attention.d"), {in(d_o), in(f.q), in(f.k), in(f.v), in(f.o), in(f.lse)}, {out(dq), out(dk), out(dv)}, n * s.heads * 16);
  if (s.gated) {
    op(at(l, "rope_q.d"), {inout(dq), in(p.inputs[1].tensor)}, {});
    op(at(l, "rope_k.d"), {inout(dk), in(p.inputs[1].tensor)}, {});
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
  const TensorId nf = active("final_norm", {n, s.width}, Owner::Saved),
                 rf = tensor("final_rstd", {n}, GALLEY_F32, Owner::Saved, Life::Segment);
  op("norm", {in(x), in(weights.at("norm.weight"))}, {out(nf), out(rf)});
  const std::string head = s.tied ? "embed.weight" : "head.weight";
  TensorId dnf = active("final_norm.d", {n, s.width});
  for (int64_t c = 0; c < s.chunks; ++c) {
    const int64_t begin = n * c / s.chunks, count = n * (c + 1) / s.chunks - begin;
    const std::string suffix = "." + std::to_string(c);
    const TensorId logits = active("logits" + suffix, {count, s.vocabulary}),
                   lse = tensor("loss.lse" + suffix, {count}, GALLEY_F32, Owner::Saved, Life::Segment);
    TensorId matrix = used(head);
    op("head" + suffix, {rows(nf, begin, count, GALLEY_READ), in(matrix)}, {out(logits)}, count * 64);
    op("loss" + suffix, {in(logits), rows(p.inputs[2].tensor, begin, count, GALLEY_READ)}, {out(lse), scalar(2, GALLEY_ACCUMULATE)});
    op("loss.d" + suffix, {inout(logits), in(lse), scalar(3)}, {});
    matrix = used(head);
    op("head.dx" + suffix, {in(logits), in(matrix)}, {rows(dnf, begin, count, GALLEY_WRITE)}, count * 32);
    contribute("head.dw" + suffix, {in(logits), rows(nf, begin, count, GALLEY_READ)}, head);
  }
  TensorId dx = active("x.d", {n, s.width});
  op("norm.d", {in(dnf), in(x), in(rf)}, {out(dx)});
  contribute("norm.dw", {in(dnf), in(x), in(rf)}, "norm.weight");
  for (int64_t l = s.layers; l-- > 0;) backward(l, kept[static_cast<size_t>(l)], &dx);
  contribute("embed.d", {in(dx), in(p.inputs[0].tensor)}, "embed.weight");
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
    op("loss", {in(logits), in(p.inputs[2].tensor)}, {scalar(2, GALLEY_ACCUMULATE)});
  }
}

}  // namespace galley::models
