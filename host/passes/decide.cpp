// What backward keeps of forward, and what one strategy of the recipe says to that.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "host/passes/clone.hpp"
#include "host/passes/fuse.hpp"
#include "host/plan/plan.hpp"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

/// What forward leaves for head and backward, with the price of each: the nodes between it and the saved tensors that it is made from.
Result<SavedSet> saved_set(const Compilation& c) {
  const Tensors tensors = c.tensors();
  const std::vector<Item>& forward = c.orders.forward;
  std::set<galley_tensor> read;
  for (const auto* items : {&c.orders.head, &c.orders.backward})
    for (const Item& item : *items)
      for (const Ref& r : item.inputs) read.insert(r.tensor);

  SavedSet set;
  std::map<galley_tensor, size_t> producers;
  std::map<galley_tensor, uint64_t> index;
  std::vector<std::optional<galley_cost>> costs(forward.size());
  for (size_t at = 0; at < forward.size(); ++at) {
    const Item& item = forward[at];
    set.blocks = std::max(set.blocks, item.node->block + 1);
    for (const Ref& r : item.outputs)
      if (r.tensor) producers[r.tensor] = at;
    for (const Ref& r : item.outputs) {
      if (!r.tensor || !read.contains(r.tensor) || tensors[r.tensor].kind != GALLEY_KIND_TRANSIENT) continue;
      const GraphTensor& t = tensors[r.tensor];
      auto s = new_struct<galley_saved_item>();
      s.name = t.name.c_str();
      s.bytes = t.bytes();
      s.block = item.node->block;
      std::set<size_t> between;
      std::set<uint64_t> parents;
      for (std::vector<size_t> open = {at}; !open.empty();) {
        const size_t made = open.back();
        open.pop_back();
        if (!between.insert(made).second) continue;
        for (const Ref& in : forward[made].inputs) {
          if (const auto saved = index.find(in.tensor); saved != index.end()) parents.insert(saved->second);
          else if (const auto producer = producers.find(in.tensor); producer != producers.end()) open.push_back(producer->second);
        }
      }
      for (const size_t made : between) {
        if (!costs[made]) costs[made] = TRY(item_cost(c, forward[made]));
        const galley_cost& cost = *costs[made];
        s.flops += cost.flops;
        s.recompute_seconds += std::max(cost.flops / c.target.peak_flops(), cost.bytes / c.target.bandwidth());
      }
      const MemoryClass& other = c.target.memories.size() > 1 ? c.target.memories[1] : c.target.memories[0];
      s.offload_seconds = static_cast<double>(s.bytes) / other.out_bandwidth + static_cast<double>(s.bytes) / other.in_bandwidth;
      s.flags = GALLEY_SAVED_RECOMPUTABLE | (t.flags & GALLEY_TENSOR_BLOCK_INPUT ? GALLEY_SAVED_BLOCK_INPUT : 0u);
      set.parents.emplace_back(parents.begin(), parents.end());
      s.parents = set.parents.back().data();
      s.n_parents = static_cast<uint32_t>(set.parents.back().size());
      index[r.tensor] = set.items.size();
      set.tensors.push_back(r.tensor);
      set.items.push_back(s);
    }
  }
  return set;
}

/// The peaks of plans that differ in the choices alone. All that the choices do not change is looked at once; a question costs an outline
/// of micro and the planner's search.
class Peaks {
 public:
  explicit Peaks(Compilation& c) : c_(c), recomputer_(c), fuser_(c), base_(outline_of(c.program)) {
    for (size_t s = 0; s < segment_count; ++s)
      for (const Instruction& i : c.program.segments[s].code) {
        sources_[s].instructions.push_back(&i);
        sources_[s].recomputed.push_back(false);
      }
    micro_ = sources_[static_cast<size_t>(SegmentKind::Micro)].instructions;
  }

  Result<int64_t> of(std::span<const uint32_t> choices, uint32_t memory) {
    if (memory >= c_.target.memories.size())
      return plugin_error("device '" + c_.target.device + "' has no memory class " + std::to_string(memory));
    Recomputed made = recomputer_.apply(choices);
    Outline outline = base_;
    for (const TensorId t : made.copies) outline.tensors.push_back(outline.tensors[static_cast<size_t>(t)]);
    outline.segments[static_cast<size_t>(SegmentKind::Micro)] = std::move(made.code);
    StepsOf& micro = sources_[static_cast<size_t>(SegmentKind::Micro)];
    micro.instructions.clear();
    for (const uint32_t i : made.from) micro.instructions.push_back(micro_[i]);
    micro.recomputed = std::move(made.again);
    return TRY(fuser_.find(outline, sources_)).peaks[memory];
  }

 private:
  Compilation& c_;
  Recomputer recomputer_;
  Fuser fuser_;
  Outline base_;
  Sources sources_;
  std::vector<const Instruction*> micro_;  ///< without clones
};

struct Question {
  Peaks* peaks;
  size_t choices;
};

galley_status answer_peak(void* context, const uint32_t* asked, uint32_t memory, int64_t* out, galley_error* error) {
  auto* question = static_cast<Question*>(context);
  const auto got = question->peaks->of({asked, question->choices}, memory);
  if (!got) {
    fill_error(error, GALLEY_FAILED, got.error().cause, got.error().hint);
    return GALLEY_FAILED;
  }
  *out = *got;
  return GALLEY_OK;
}

Status ask(Compilation& c, size_t use) {
  Peaks peaks(c);
  Question question = {&peaks, c.choices.size()};
  std::vector<const galley_saved_item*> items;
  for (const galley_saved_item& s : c.saved.items) items.push_back(&s);
  const TargetView target(c.target);
  auto view = new_struct<galley_saved_set>();
  view.target = target.get();
  view.items = items.data();
  view.n_items = items.size();
  view.blocks = c.saved.blocks;
  view.context = &question;
  view.peak = answer_peak;
  const LoadedStrategy& s = *c.strategies[use];
  TRY_STATUS(call_strategy(c.graph, c.strategies, {Section::Forward, static_cast<int>(use)}, "decide",
                           [&](galley_error* error) { return s.saved()->decide(s.instance(), &view, c.choices.data(), error); }));
  for (size_t k = 0; k < c.choices.size(); ++k)
    if (c.choices[k] != GALLEY_KEEP && c.choices[k] != GALLEY_RECOMPUTE)
      return recipe_error(label(c.strategies, static_cast<int>(use)) + ": device '" + c.target.device +
                          "' keeps or recomputes saved tensors; choice " + std::to_string(c.choices[k]) + " for '" + c.saved.items[k].name +
                          "' is not among them");
  return ok();
}

}  // namespace

Status decide(Compilation& c) {
  if (!c.backward()) return ok();
  c.saved = TRY(saved_set(c));
  c.choices.assign(c.saved.items.size(), GALLEY_KEEP);
  int decider = no_use;
  for (size_t i = 0; i < c.strategies.size(); ++i) {
    if (!c.strategies[i]->saved()) continue;
    if (decider != no_use)
      return recipe_error(
          "two strategies decide what backward keeps: " + label(c.strategies, decider) + " and " + label(c.strategies, static_cast<int>(i)),
          "take one of the two out");
    decider = static_cast<int>(i);
  }
  return decider == no_use ? ok() : ask(c, static_cast<size_t>(decider));
}

}  // namespace galley
