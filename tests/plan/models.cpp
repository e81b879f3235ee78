#include "tests/plan/models.hpp"

#include <algorithm>
#include <random>

#include "tests/plan/model_builder.hpp"

namespace galley::models {

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

void Builder::load() {
  code = &p.segment(SegmentKind::Load).code;
  for (const auto& [name, id] : weights) {
    if (trains(name) && s.training == Training::Lora) {
      op(name + ".init", {scalar(0)}, {out(id)});
    } else if (p.tensors[static_cast<size_t>(id)].dtype == GALLEY_U8) {
      Shape shape = p.tensors[static_cast<size_t>(id)].shape;
      shape.back() *= 2;
      const TensorId wide = tensor(name + ".f32", shape, GALLEY_F32, Owner::Activations, Life::Segment);
      Instruction& read = emit(Read(), name);
      read.outputs = {out(wide), out(p.staging)};
      op(name + ".pack", {in(wide)}, {out(id)});
    } else {
      Instruction& read = emit(Read(), name);
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

Program Builder::run() {
  p.rows = s.batch;
  p.length = s.length;
  p.micro_batches = s.micro_batches;
  p.scalars = tensor("scalars", {256}, GALLEY_U8, Owner::Data, Life::Run);
  p.step_image = tensor("step image", {256}, GALLEY_U8, Owner::Data, Life::Run);
  for (uint32_t i = 0; i < 5; ++i) {
    ScalarSlot slot;
    slot.which = i + 1;
    slot.offset = 8 * i;
    slot.bytes = 8;
    slot.dtype = GALLEY_F64;
    p.slots.push_back(slot);
  }
  for (const char* name : {"input_ids", "position_ids", "labels", "first_key"})
    p.inputs.push_back({name, tensor(name, {tokens()}, GALLEY_I32, Owner::Data, Life::Run)});
  p.window = tensor("window", {2 * s.micro_batches * tokens() * 4}, GALLEY_U8, Owner::Data, Life::Run);
  p.corpus = tensor("corpus", {0}, GALLEY_U8, Owner::Data, Life::Run);
  p.staging = tensor("staging", {1 << 16}, GALLEY_U8, Owner::Data, Life::Run);
  p.sample_position = tensor("sample_position", {1}, GALLEY_I32, Owner::Data, Life::Run);
  if (s.samples) p.sample_logits = tensor("sample_logits", {1, s.vocabulary}, GALLEY_F32, Owner::Data, Life::Segment);

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

  take_image(SegmentKind::Load);
  load();
  take_image(SegmentKind::Window);
  micro();
  updates();
  for (const auto& [kind, wanted] : {std::pair(SegmentKind::Eval, s.evaluates), std::pair(SegmentKind::Sample, s.samples)}) {
    if (!wanted) continue;
    take_image(kind);
    forward_only(kind);
  }
  code = &p.segment(SegmentKind::Export).code;
  for (const auto& [name, id] : weights) {
    if (s.training == Training::Lora && !trains(name)) continue;
    Instruction& write = emit(Write(), name);
    write.inputs = {in(id)};
    write.outputs = {out(p.staging)};
  }
  return std::move(p);
}

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
  return n(s.layers) + " layers, " + n(s.batch) + " x " + n(s.length) + ", width " + n(s.width) + "/" + n(s.kv_width) + "/" + n(s.hidden) +
         ", vocabulary " + n(s.vocabulary) + ", chunks " + n(s.chunks) + ", micro-batches " + n(s.micro_batches) + ", training " +
         n(s.training) + ", recompute " + n(s.recompute) + ", offload " + n(s.offload) + ", optimizer " + n(s.optimizer) +
         (s.gated ? ", gated" : "") + (s.tied ? ", tied" : "") + (s.quantized ? ", quantized" : "") + (s.mixed ? ", mixed" : "");
}

Target two_classes() {
  Target target;
  target.queues = {Queue::Compute, Queue::Compute};
  target.memories = {{"host", 64, true, true}, {"spill", 4096, true, false}};
  return target;
}

}  // namespace galley::models
