// Nodes become sequences: head and loss unrolled over chunks of rows, forward nodes cloned where backward recomputes them.
#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "galley/op.h"
#include "galley/saved.h"
#include "host/passes/compile.hpp"

namespace galley {
namespace {

Item whole(const GraphNode& node) {
  Item item;
  item.node = &node;
  for (const galley_tensor t : node.inputs) item.inputs.push_back({t, 0, -1});
  for (const galley_tensor t : node.outputs) item.outputs.push_back({t, 0, -1});
  item.accumulate = node.accumulate;
  return item;
}

/// The head and loss: every forward node that depends on the last hidden state, and the backward nodes of these.
class Head {
 public:
  Head(Graph& graph, const std::vector<galley_node>& forward, const std::vector<galley_node>& backward) : graph_(graph) {
    if (!graph.hidden) return;
    std::set<galley_tensor> reached = {graph.hidden};
    for (const galley_node n : forward) {
      const GraphNode& node = graph.node(n);
      if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](galley_tensor t) { return reached.contains(t); })) continue;
      members_.insert(n);
      forward_.push_back(n);
      for (const galley_tensor t : node.outputs) reached.insert(t);
    }
    for (const galley_node n : backward)
      if (members_.contains(graph.node(n).origin)) {
        members_.insert(n);
        backward_.push_back(n);
      }
  }

  bool contains(galley_node n) const { return members_.contains(n); }
  const std::vector<galley_node>& forward() const { return forward_; }

  /// Forward and backward of rows [0, rows_of_hidden) in chunks of at most `chunk` rows. Falls back to one chunk where a node mixes rows.
  void unroll(int64_t chunk, bool training, bool keep_logits, const std::vector<galley_node>& all, std::vector<Item>* out) {
    const GraphTensor& hidden = graph_.tensor(graph_.hidden);
    total_ = hidden.shape.empty() ? 1 : hidden.count() / hidden.shape.back();
    keep_logits_ = keep_logits;
    find_roles(all);
    if (!chunkable_ || keep_logits) chunk = total_;
    const int64_t chunks = (total_ + chunk - 1) / chunk, even = (total_ + chunks - 1) / chunks;
    for (int64_t row = 0; row < total_; row += even) {
      made_.clear();
      const int64_t rows = std::min(even, total_ - row);
      for (const galley_node n : forward_) emit(n, row, rows, training, out);
      for (const galley_node n : backward_) emit(n, row, rows, training, out);
    }
  }

 private:
  /// Which tensors are split by rows, and which live within one chunk only.
  void find_roles(const std::vector<galley_node>& all) {
    chunkable_ = true;
    split_ = {graph_.hidden};
    std::vector<galley_node> nodes = forward_;
    nodes.insert(nodes.end(), backward_.begin(), backward_.end());
    for (const galley_node n : nodes) {
      const GraphNode& node = graph_.node(n);
      bool by_rows = false;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const galley_tensor t = node.inputs[i];
        const galley_operand_rule* rule = input_rule(node.op, i);
        if (!t || !rule) continue;
        const bool is_input = graph_.tensor(t).kind == GALLEY_KIND_INPUT && rows_of(t, rule) == total_;
        if (rule->role == GALLEY_ROLE_ROWS && (split_.contains(t) || is_input)) {
          split_.insert(t);
          by_rows = true;
        } else if (split_.contains(t)) chunkable_ = false;
      }
      for (size_t i = 0; by_rows && i < node.outputs.size(); ++i) {
        const galley_tensor t = node.outputs[i];
        if (!t) continue;
        const uint32_t role = output_rule(node.op, i)->role, kind = graph_.tensor(t).kind;
        // What is summed over rows goes where chunks can add to it.
        const bool sums = role == GALLEY_ROLE_REDUCED && (kind == GALLEY_KIND_GRADIENT || kind == GALLEY_KIND_SCALAR) &&
                          output_rule(node.op, i)->flags & GALLEY_OPERAND_ACCUMULATES;
        if (role == GALLEY_ROLE_ROWS) split_.insert(t);
        else if (!sums) chunkable_ = false;
      }
    }
    std::set<galley_tensor> outside;
    for (const galley_node n : all) {
      if (contains(n)) continue;
      for (const galley_tensor t : graph_.node(n).inputs) outside.insert(t);
      for (const galley_tensor t : graph_.node(n).outputs) outside.insert(t);
    }
    for (const galley_node n : nodes)
      for (const galley_tensor t : graph_.node(n).outputs)
        if (t && split_.contains(t) && graph_.tensor(t).kind == GALLEY_KIND_TRANSIENT && !outside.contains(t) &&
            !(keep_logits_ && t == graph_.logits))
          interior_.insert(t);
  }

  int64_t rows_of(galley_tensor t, const galley_operand_rule* rule) const {
    const GraphTensor& x = graph_.tensor(t);
    return rule->flags & GALLEY_OPERAND_SAME_ROWS || x.shape.empty() ? x.count() : x.count() / x.shape.back();
  }

  Ref part(galley_tensor t, const galley_operand_rule* rule, int64_t row, int64_t rows) {
    if (!t || !split_.contains(t) || rows == total_) return {t, 0, -1};
    if (!interior_.contains(t)) return {t, row, rows};
    const auto [it, fresh] = made_.try_emplace(t, 0);
    if (fresh) {
      GraphTensor x = graph_.tensor(t);
      const int64_t columns = x.count() / total_;
      x.shape = rule->flags & GALLEY_OPERAND_SAME_ROWS ? Shape{rows} : Shape{rows, columns};
      it->second = *graph_.make(std::move(x));
    }
    return {it->second, 0, -1};
  }

  void emit(galley_node n, int64_t row, int64_t rows, bool training, std::vector<Item>* out) {
    const GraphNode& node = graph_.node(n);
    Item item;
    item.node = &node;
    item.training = training;
    item.first_row = row;
    bool by_rows = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      item.inputs.push_back(part(node.inputs[i], input_rule(node.op, i), row, rows));
      by_rows = by_rows || (node.inputs[i] && split_.contains(node.inputs[i]));
    }
    if (!by_rows && row > 0) return;  // nothing of it depends on the chunk: done once
    item.accumulate = node.accumulate;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const galley_operand_rule* rule = output_rule(node.op, i);
      item.outputs.push_back(part(node.outputs[i], rule, row, rows));
      if (row > 0 && node.outputs[i] && rule->role == GALLEY_ROLE_REDUCED) item.accumulate |= 1u << i;
    }
    out->push_back(std::move(item));
  }

  Graph& graph_;
  std::set<galley_node> members_;
  std::vector<galley_node> forward_, backward_;
  std::set<galley_tensor> split_, interior_;
  std::map<galley_tensor, galley_tensor> made_;  // interior tensor → this chunk's own
  int64_t total_ = 0;
  bool chunkable_ = true;
  bool keep_logits_ = false;
};

/// Rows of one chunk: logits of about 64 MiB, but enough rows for the products to run at full speed.
int64_t chunk_rows(const Graph& graph, const CompileOptions& options) {
  if (options.head_rows > 0) return options.head_rows;
  if (!graph.logits) return INT64_MAX;
  const int64_t bytes_a_row = std::max<int64_t>(1, graph.tensor(graph.logits).shape.back() * 4);
  return std::max<int64_t>(128, (64 << 20) / bytes_a_row);
}

/// Replaces what backward reads by clones of forward nodes where the choice says so; the clones that it reads are added to `saved`.
std::vector<Item> recompute(Graph& graph, const std::vector<Item>& forward, const std::vector<Item>& head,
                            const std::vector<Item>& backward, const std::set<galley_tensor>& kept, std::vector<galley_tensor>* saved) {
  std::map<galley_tensor, const Item*> producers;
  for (const Item& item : forward)
    for (const Ref& r : item.outputs)
      if (r.tensor && graph.tensor(r.tensor).kind == GALLEY_KIND_TRANSIENT) producers[r.tensor] = &item;

  std::vector<Item> out = forward;
  out.insert(out.end(), head.begin(), head.end());
  std::map<galley_tensor, galley_tensor> clones;
  // The tensor that stands for `t` in backward; clones what is needed to have it.
  const std::function<galley_tensor(galley_tensor)> available = [&](galley_tensor t) -> galley_tensor {
    const auto made = producers.find(t);
    if (!t || made == producers.end() || kept.contains(t)) return t;
    if (const auto it = clones.find(t); it != clones.end()) return it->second;
    Item clone = *made->second;
    for (Ref& r : clone.inputs) r.tensor = available(r.tensor);
    for (Ref& r : clone.outputs) {
      if (!r.tensor) continue;
      GraphTensor x = graph.tensor(r.tensor);
      x.flags &= ~static_cast<uint64_t>(GALLEY_TENSOR_BLOCK_INPUT);
      const galley_tensor copy = *graph.make(std::move(x));
      clones[r.tensor] = copy;
      r.tensor = copy;
    }
    clone.recomputed = true;
    out.push_back(std::move(clone));
    return clones[t];
  };
  std::set<galley_tensor> again;
  for (Item item : backward) {
    for (Ref& r : item.inputs) {
      const galley_tensor here = available(r.tensor);
      if (here != r.tensor) again.insert(here);
      r.tensor = here;
    }
    out.push_back(std::move(item));
  }
  saved->insert(saved->end(), again.begin(), again.end());
  return out;
}

struct SavedSet {
  std::vector<galley_tensor> tensors;
  std::deque<std::vector<uint64_t>> parents;
  std::vector<galley_saved_item> items;
  std::vector<const galley_saved_item*> pointers;
  int64_t blocks = 0;
};

/// What forward leaves for head and backward, with the price of each: the nodes between it and the saved tensors that it is made from.
Result<SavedSet> saved_set(const Graph& graph, const Target& target, std::span<const Item> forward, const std::set<galley_tensor>& read) {
  SavedSet set;
  std::map<galley_tensor, const Item*> producers;
  std::map<galley_tensor, uint64_t> index;
  for (const Item& item : forward) {
    set.blocks = std::max(set.blocks, item.node->block + 1);
    for (const Ref& r : item.outputs)
      if (r.tensor) producers[r.tensor] = &item;
    for (const Ref& r : item.outputs) {
      if (!r.tensor || !read.contains(r.tensor) || graph.tensor(r.tensor).kind != GALLEY_KIND_TRANSIENT) continue;
      const GraphTensor& t = graph.tensor(r.tensor);
      galley_saved_item s = {};
      s.size = sizeof s;
      s.revision = 1;
      s.name = t.name.c_str();
      s.bytes = t.bytes();
      s.block = item.node->block;
      std::set<const Item*> between;
      std::set<uint64_t> parents;
      for (std::vector<const Item*> open = {&item}; !open.empty();) {
        const Item* made = open.back();
        open.pop_back();
        if (!between.insert(made).second) continue;
        for (const Ref& in : made->inputs) {
          if (const auto saved = index.find(in.tensor); saved != index.end()) parents.insert(saved->second);
          else if (const auto producer = producers.find(in.tensor); producer != producers.end()) open.push_back(producer->second);
        }
      }
      for (const Item* made : between) {
        const galley_cost cost = TRY(item_cost(graph, *made));
        s.flops += cost.flops;
        s.recompute_seconds += std::max(cost.flops / target.peak_flops(), cost.bytes / target.bandwidth());
      }
      const MemoryClass& other = target.memories.size() > 1 ? target.memories[1] : target.memories[0];
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
  for (const galley_saved_item& s : set.items) set.pointers.push_back(&s);
  return set;
}

}  // namespace

Result<galley_cost> item_cost(const Graph& graph, const Item& item) {
  galley_cost cost = {sizeof(galley_cost), 1, 0, 0};
  const GraphNode& node = *item.node;
  std::vector<galley_tensor> inputs;
  double scale = 1;
  for (const Ref& r : item.inputs) {
    inputs.push_back(r.tensor);
    if (r.tensor && r.rows >= 0) {  // costs of row-wise nodes are proportional to rows
      const GraphTensor& t = graph.tensor(r.tensor);
      const int64_t all = graph.tensor(graph.hidden).count() / graph.tensor(graph.hidden).shape.back();
      if (t.kind != GALLEY_KIND_INPUT) scale = static_cast<double>(r.rows) / static_cast<double>(all);
    }
  }
  // Where only some operands are slices, the others already have the chunk's shape; describe the node by its unsplit operands.
  if (scale != 1) inputs = node.inputs;
  std::vector<galley_tensor> outputs;
  for (size_t i = 0; i < item.outputs.size(); ++i) outputs.push_back(scale != 1 ? node.outputs[i] : item.outputs[i].tensor);
  NodeDescription description(graph, node.op, node.name, inputs, node.attrs, outputs);
  if (node.op->cost) {
    galley_error error = GALLEY_ERROR_INIT;
    if (node.op->cost(description.view(), &cost, &error) != GALLEY_OK) return plugin_error("cost of '" + node.name + "': " + error.text);
  }
  if (cost.bytes == 0)
    for (const auto* list : {&inputs, &outputs})
      for (const galley_tensor t : *list)
        if (t) cost.bytes += static_cast<double>(graph.tensor(t).bytes());
  cost.flops *= scale;
  cost.bytes *= scale;
  return cost;
}

Sequence schedule_plain(const Graph& graph, const std::vector<galley_node>& nodes) {
  Sequence out;
  for (const galley_node n : nodes) out.items.push_back(whole(graph.node(n)));
  return out;
}

Result<Sequence> schedule_micro(Graph& graph, std::span<const Strategy> strategies, const Target& target, const CompileOptions& options,
                                const PeakOf& peak) {
  const auto& forward_nodes = graph.section(Section::Forward);
  const auto& backward_nodes = graph.section(Section::Backward);
  std::vector<galley_node> all = forward_nodes;
  all.insert(all.end(), backward_nodes.begin(), backward_nodes.end());

  Head head(graph, forward_nodes, backward_nodes);
  std::vector<Item> forward, middle, backward;
  for (const galley_node n : forward_nodes)
    if (!head.contains(n)) forward.push_back(whole(graph.node(n)));
  if (graph.hidden) head.unroll(chunk_rows(graph, options), true, options.keep_logits, all, &middle);
  for (const galley_node n : backward_nodes)
    if (!head.contains(n)) backward.push_back(whole(graph.node(n)));

  std::set<galley_tensor> read;
  for (const auto* items : {&middle, &backward})
    for (const Item& item : *items)
      for (const Ref& r : item.inputs) read.insert(r.tensor);
  const SavedSet set = TRY(saved_set(graph, target, forward, read));

  const auto sequence = [&](std::span<const uint32_t> choices) {
    Sequence out;
    std::set<galley_tensor> kept;
    for (size_t i = 0; i < choices.size(); ++i)
      if (choices[i] == GALLEY_KEEP) {
        kept.insert(set.tensors[i]);
        out.saved.push_back(set.tensors[i]);
      }
    out.items = recompute(graph, forward, middle, backward, kept, &out.saved);
    return out;
  };

  std::vector<uint32_t> choices(set.items.size(), GALLEY_KEEP);
  int decider = no_use;
  for (size_t i = 0; i < strategies.size(); ++i) {
    if (!strategies[i].saved) continue;
    if (decider != no_use)
      return recipe_error(
          "two strategies decide what backward keeps: " + strategies[static_cast<size_t>(decider)].label + " and " + strategies[i].label,
          "take one of the two out");
    decider = static_cast<int>(i);
    struct Context {
      const decltype(sequence)* make;
      const PeakOf* peak;
      size_t n;
    } context = {&sequence, &peak, choices.size()};
    galley_saved_set view = {};
    view.size = sizeof view;
    view.revision = 1;
    view.items = set.pointers.data();
    view.n_items = set.pointers.size();
    view.blocks = set.blocks;
    view.context = &context;
    view.peak = [](void* data, const uint32_t* asked, uint32_t memory, int64_t* out, galley_error* error) -> galley_status {
      const auto* c = static_cast<const Context*>(data);
      const auto got = (*c->peak)((*c->make)({asked, c->n}), memory);
      if (!got) {
        if (error) std::snprintf(error->text, sizeof error->text, "%s", got.error().cause.c_str());
        return GALLEY_FAILED;
      }
      *out = *got;
      return GALLEY_OK;
    };
    TRY_STATUS(call_strategy(graph, strategies, i, "deciding what backward keeps", [&](galley_error* error) {
      return strategies[i].saved->decide(strategies[i].instance, &view, choices.data(), error);
    }));
    for (size_t k = 0; k < choices.size(); ++k)
      if (choices[k] != GALLEY_KEEP && choices[k] != GALLEY_RECOMPUTE)
        return recipe_error(strategies[i].label + ": device '" + target.device + "' keeps or recomputes saved tensors; choice " +
                            std::to_string(choices[k]) + " for '" + set.items[k].name + "' is not among them");
  }
  return sequence(choices);
}

Result<Sequence> schedule_forward(Graph& graph, const CompileOptions& options, galley_tensor position, galley_tensor* logits) {
  const auto& nodes = graph.section(Section::Forward);
  Head head(graph, nodes, {});
  Sequence out;
  for (const galley_node n : nodes)
    if (!head.contains(n)) out.items.push_back(whole(graph.node(n)));
  if (!position) {
    if (graph.hidden) head.unroll(chunk_rows(graph, options), false, false, nodes, &out.items);
  } else {
    // One row of the hidden state through the head, without the loss.
    if (!graph.hidden || !graph.logits) return recipe_error("this model marks no head to sample from");
    std::map<galley_tensor, galley_tensor> one;
    graph.current = Section::Export;
    std::vector<galley_tensor> row = {0};
    const galley_node take = TRY(graph.append("take_rows", "sample.hidden", {graph.hidden, position}, {}, &row, 0));
    one[graph.hidden] = row[0];
    out.items.push_back(whole(graph.node(take)));
    for (const galley_node n : head.forward()) {
      const GraphNode& node = graph.node(n);
      if (node.op->flags & GALLEY_OP_LOSS) continue;
      Item item = whole(node);
      for (Ref& r : item.inputs)
        if (const auto it = one.find(r.tensor); it != one.end()) r.tensor = it->second;
      for (Ref& r : item.outputs) {
        if (!r.tensor) continue;
        GraphTensor x = graph.tensor(r.tensor);
        x.shape = {1, x.shape.back()};
        const galley_tensor made = *graph.make(std::move(x));
        one[r.tensor] = made;
        r.tensor = made;
      }
      out.items.push_back(std::move(item));
    }
    *logits = one[graph.logits];
  }
  // Outside training a node that only training has hands its input on.
  std::map<galley_tensor, Ref> handed;
  std::vector<Item> kept;
  for (Item& item : out.items) {
    item.training = false;
    for (Ref& r : item.inputs)
      if (const auto it = handed.find(r.tensor); it != handed.end()) {
        const Ref to = it->second;
        r.tensor = to.tensor;
        if (to.rows >= 0) {
          r.row = to.row;
          r.rows = to.rows;
        }
      }
    if (item.node->op->flags & GALLEY_OP_TRAINING_ONLY) handed[item.outputs[0].tensor] = item.inputs[0];
    else kept.push_back(std::move(item));
  }
  out.items = std::move(kept);
  if (position && handed.contains(*logits)) *logits = handed[*logits].tensor;
  return out;
}

}  // namespace galley
