#include "host/plan/outline.hpp"

#include <cassert>

namespace galley {
namespace {

/// Visits every mention of a tensor in a program.
template <class Visit>
void visit_ids(Program& p, Visit&& visit) {
  for (Segment& segment : p.segments)
    for (Instruction& i : segment.code) {
      visit_touched(i, visit);
      if (Launch* launch = i.launch()) visit(launch->constants);
    }
  for (TensorId* id : {&p.scalars, &p.step_image, &p.readback, &p.window, &p.corpus, &p.staging, &p.logits, &p.scores, &p.sample_logits,
                       &p.hits.tensor, &p.sample_position, &p.cached.start, &p.cached.logits, &p.checksums})
    visit(*id);
  for (auto* inputs : {&p.inputs, &p.cached.prompt, &p.cached.next})
    for (auto& input : *inputs) visit(input.tensor);
  for (auto& [name, id] : p.resume) visit(id);
  for (TensorId& id : p.frozen) visit(id);
  for (Trained& t : p.trained) {
    visit(t.parameter);
    visit(t.gradient);
    visit(t.sum_squares.tensor);
  }
  for (Metric& m : p.metrics) visit(m.value.tensor);
  for (StopFlag& s : p.stops) visit(s.value.tensor);
}

template <class T>
std::vector<T> moved(std::vector<T>&& from, const std::vector<TensorId>& numbers) {
  size_t count = 0;
  for (const TensorId n : numbers) count += n != no_tensor;
  std::vector<T> out(count);
  for (size_t i = 0; i < from.size(); ++i)
    if (numbers[i] != no_tensor) out[static_cast<size_t>(numbers[i])] = std::move(from[i]);
  return out;
}

}  // namespace

Outline::Code outline_of(const Segment& segment) {
  Outline::Code out;
  out.entries.reserve(segment.code.size());
  for (const Instruction& i : segment.code) {
    Outline::Entry entry = {i.action(), i.queue, i.event, static_cast<uint32_t>(out.touched.size()), 0};
    visit_touched(i, [&](TensorId t) { out.touched.push_back(t); });
    entry.end = static_cast<uint32_t>(out.touched.size());
    out.entries.push_back(entry);
  }
  return out;
}

Outline outline_of(const Program& program) {
  Outline out;
  for (size_t s = 0; s < program.segments.size(); ++s) out.segments[s] = outline_of(program.segments[s]);
  out.tensors.reserve(program.tensors.size());
  for (const ProgramTensor& t : program.tensors) out.tensors.push_back({t.bytes, t.memory, t.life});
  out.micro_batches = program.own_micro_batches();
  for (const TensorId t : {program.logits, program.scores, program.sample_logits, program.cached.logits})
    if (t != no_tensor) out.read_by_host.push_back(t);
  for (const Trained& trained : program.trained)
    if (trained.sum_squares.present()) out.read_by_host.push_back(trained.sum_squares.tensor);
  return out;
}

std::vector<TensorId> canonical_numbers(const Outline& outline) {
  std::vector<TensorId> numbers(outline.tensors.size(), no_tensor);
  TensorId next = 0;
  for (size_t t = 0; t < numbers.size(); ++t)
    if (outline.tensors[t].life != Life::Segment) numbers[t] = next++;
  for (const Outline::Code& code : outline.segments)
    for (const TensorId t : code.touched)
      if (TensorId& number = numbers[static_cast<size_t>(t)]; number == no_tensor) number = next++;
  return numbers;
}

void renumber(Outline& outline, const std::vector<TensorId>& numbers) {
  outline.tensors = moved(std::move(outline.tensors), numbers);
  for (Outline::Code& code : outline.segments)
    for (TensorId& t : code.touched) t = numbers[static_cast<size_t>(t)];
  for (TensorId& t : outline.read_by_host) t = numbers[static_cast<size_t>(t)];
}

void renumber(Program& program, const std::vector<TensorId>& numbers) {
  program.tensors = moved(std::move(program.tensors), numbers);
  visit_ids(program, [&](TensorId& id) {
    if (id == no_tensor) return;
    id = numbers[static_cast<size_t>(id)];
    assert(id != no_tensor);
  });
}

}  // namespace galley
