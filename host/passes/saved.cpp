#include "host/passes/saved.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "host/plan/timing.hpp"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

/// By memory class, for both directions; 0: it computes itself, or is class 0.
std::vector<double> offload_seconds(const Target& target, int64_t bytes) {
  std::vector<double> out(target.memories.size(), 0);
  for (size_t m = 1; m < out.size(); ++m) {
    const MemoryClass& to = target.memories[m];
    if (!to.computes) out[m] = static_cast<double>(bytes) / to.out_bandwidth + static_cast<double>(bytes) / to.in_bandwidth;
  }
  return out;
}

/// Returns the arithmetic of the item's first operand of floating-point numbers.
std::string_view arithmetic_of(const Item& item, const Tensors& tensors) {
  for (const Ref& r : item.inputs) {
    const auto known = galley::arithmetic_of(r.tensor ? tensors[r.tensor].dtype : 0, item.node->attrs);
    if (!known.empty()) return known;
  }
  return "f32";
}

}  // namespace

Result<SavedSet> find_saved(const Compilation& c) {
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
  std::vector<bool> once;
  for (const Item& item : forward) once.push_back(runs_once(tensors, item));
  for (size_t at = 0; at < forward.size(); ++at) {
    const Item& item = forward[at];
    set.blocks = std::max(set.blocks, item.node->block + 1);
    for (const Ref& r : item.outputs)
      if (r.tensor) producers[r.tensor] = at;
    for (const Ref& r : item.outputs) {
      if (!r.tensor || tensors[r.tensor].kind != GALLEY_KIND_TRANSIENT) continue;
      const GraphTensor& t = tensors[r.tensor];
      const bool enters = (t.flags & GALLEY_TENSOR_BLOCK_INPUT) != 0;
      if (!enters && !read.contains(r.tensor)) continue;
      auto s = new_struct<galley_saved_item>();
      s.name = t.name.c_str();
      s.bytes = t.bytes();
      s.block = item.node->block;
      s.op = item.node->op->name;
      s.op_flags = item.node->op->flags;
      std::set<size_t> between;
      std::set<uint64_t> parents;
      for (std::vector<size_t> open = {at}; !open.empty();) {
        const size_t made = open.back();
        open.pop_back();
        if (!between.insert(made).second) continue;
        for (const Ref& in : forward[made].inputs) {
          if (const auto saved = index.find(in.tensor); saved != index.end()) parents.insert(saved->second);
          else if (const auto producer = producers.find(in.tensor); producer != producers.end() && !once[producer->second])
            open.push_back(producer->second);
        }
      }
      for (const size_t made : between) {
        if (!costs[made]) costs[made] = TRY(item_cost(c.graph, tensors, forward[made]));
        const galley_cost& cost = *costs[made];
        s.flops += cost.flops;
        s.recompute_seconds +=
            std::max(cost.flops / c.target.peak_flops(arithmetic_of(forward[made], tensors)), cost.bytes / c.target.bandwidth());
      }
      const std::vector<double>& seconds = set.offload_seconds.emplace_back(offload_seconds(c.target, s.bytes));
      s.offload_seconds_to = seconds.data();
      s.n_memories = static_cast<uint32_t>(seconds.size());
      const bool offloads = std::ranges::any_of(seconds, [](double to) { return to > 0; });
      s.flags =
          (once[at] ? 0 : GALLEY_SAVED_RECOMPUTABLE) | (enters ? GALLEY_SAVED_BLOCK_INPUT : 0) | (offloads ? GALLEY_SAVED_OFFLOADABLE : 0);
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

}  // namespace galley
