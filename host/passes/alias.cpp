#include "host/passes/alias.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "host/passes/passes.hpp"

namespace galley {

std::vector<TakeOver> take_overs(const Program& program, const Instruction& i) {
  std::vector<TakeOver> out;
  const auto movable = [&](const Operand& o) {
    if (!o.present()) return false;
    const ProgramTensor& t = program.tensors[static_cast<size_t>(o.tensor)];
    return t.life == Life::Segment && t.owner != Owner::Workspace && o.bytes() == t.bytes;
  };
  const std::vector<int64_t> taken = taken_inputs(i);
  if (std::ranges::all_of(taken, [](int64_t input) { return input < 0; })) return out;
  std::vector<uint32_t> positions = {0};  // of each operand among those that are there
  std::unordered_map<TensorId, size_t> read;
  for (const auto* operands : {&i.inputs, &i.outputs})
    for (const Operand& o : *operands) positions.push_back(positions.back() + (o.present() ? 1 : 0));
  for (const Operand& o : i.inputs)
    if (!o.inner) ++read[o.tensor];
  for (size_t k = 0; k < i.outputs.size(); ++k) {
    if (taken[k] < 0) continue;
    const auto from = static_cast<size_t>(taken[k]);
    const Operand &to = i.outputs[k], &in = i.inputs[from];
    if (!movable(to) || !movable(in) || to.access != GALLEY_WRITE || in.access != GALLEY_READ || to.bytes() != in.bytes()) continue;
    if (read[in.tensor] != 1) continue;
    out.push_back({positions[i.inputs.size() + k], positions[from]});
  }
  return out;
}

void share(Outline::Code& code, const std::vector<const std::vector<TakeOver>*>& allowed, size_t tensors) {
  std::vector<uint32_t> first(tensors, UINT32_MAX), last(tensors, 0);
  for (uint32_t s = 0; s < code.entries.size(); ++s)
    for (const TensorId t : code.of(code.entries[s])) {
      first[static_cast<size_t>(t)] = std::min(first[static_cast<size_t>(t)], s);
      last[static_cast<size_t>(t)] = s;
    }
  std::vector<TensorId> now(tensors);
  std::iota(now.begin(), now.end(), TensorId{0});
  for (uint32_t s = 0; s < code.entries.size(); ++s) {
    TensorId* const of = code.touched.data() + code.entries[s].begin;
    for (const TakeOver& t : *allowed[s]) {
      const auto out = static_cast<size_t>(of[t.output]), in = static_cast<size_t>(of[t.input]);
      if (first[out] != s || last[in] != s || now[out] != static_cast<TensorId>(out)) continue;
      now[out] = now[in];
      last[in] = UINT32_MAX;  // taken
    }
  }
  for (TensorId& t : code.touched) t = now[static_cast<size_t>(t)];
}

Status alias(Compilation& c) {
  Program& program = c.program;
  for (Segment& segment : program.segments) {
    Outline::Code code = outline_of(segment);
    std::vector<std::vector<TakeOver>> allowed;
    std::vector<const std::vector<TakeOver>*> by_step;
    allowed.reserve(segment.code.size());
    for (const Instruction& i : segment.code) {
      allowed.push_back(take_overs(program, i));
      by_step.push_back(&allowed.back());
    }
    share(code, by_step, program.tensors.size());
    for (size_t s = 0; s < segment.code.size(); ++s) {
      Instruction& i = segment.code[s];
      const TensorId* next = code.of(code.entries[s]).data();
      for (auto* operands : {&i.inputs, &i.outputs})
        for (Operand& o : *operands)
          if (o.present()) o.value = o.tensor;
      visit_touched(i, [&](TensorId& id) {
        // What backward keeps counts as saved, whoever had its bytes before.
        if (program.tensors[static_cast<size_t>(id)].owner == Owner::Saved)
          program.tensors[static_cast<size_t>(*next)].owner = Owner::Saved;
        id = *next++;
      });
    }
  }
  renumber(program, canonical_numbers(outline_of(program)));
  return ok();
}

}  // namespace galley
