// Nodes become items in order. Head and loss are every forward node that depends on the last hidden state, and the backward nodes of
// these: they are unrolled over chunks of its rows, so that logits of all rows are never there at once.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "galley/op.h"
#include "host/passes/constants.hpp"
#include "host/passes/makers.hpp"
#include "host/passes/passes.hpp"

namespace galley {
namespace {

/// Logits of about so many bytes are one chunk, but at least so many rows, for the products to run at full speed.
constexpr int64_t kChunkBytes = 64 << 20;
constexpr int64_t kChunkRows = 128;
/// More where the head's weight and its gradient, which each chunk reads and writes whole, would take longer than this share of the
/// products; but not more than this share of the memory.
constexpr double kTraffic = 0.25;
constexpr int64_t kMemoryShare = 128;

galley_tensor own_tensor(const Graph& graph, Orders& orders, GraphTensor x) {
  orders.own.push_back(std::move(x));
  return graph.tensor_count() + orders.own.size();
}

class Head {
 public:
  Head(const Graph& graph, Orders& orders, bool keep_logits)
      : graph_(graph), orders_(orders), keep_logits_(keep_logits), forward_(head_nodes(graph)) {
    members_.insert(forward_.begin(), forward_.end());
    for (const galley_node n : graph.section(Section::Backward))
      if (members_.contains(graph.node(n).origin)) {
        members_.insert(n);
        backward_.push_back(n);
      }
  }

  bool contains(galley_node n) const { return members_.contains(n); }
  const std::vector<galley_node>& forward() const { return forward_; }

  /// Returns the head's nodes in chunks of at most `chunk` rows; in one chunk where a node mixes rows.
  std::vector<Item> unroll(int64_t chunk, bool training) {
    std::vector<Item> out;
    if (!graph_.marks.hidden) return out;
    const GraphTensor& hidden = graph_.tensor(graph_.marks.hidden);
    total_ = hidden.shape.empty() ? 1 : hidden.count() / hidden.shape.back();
    const std::vector<galley_node> backward = training ? backward_ : std::vector<galley_node>();
    find_roles(backward, training);
    if (!chunkable_ || keep_logits_) chunk = total_;
    const int64_t chunks = (total_ + chunk - 1) / chunk, even = (total_ + chunks - 1) / chunks;
    for (int64_t row = 0; row < total_; row += even) {
      made_.clear();
      const int64_t rows = std::min(even, total_ - row);
      for (const galley_node n : forward_) emit(n, row, rows, training, &out);
      for (const galley_node n : backward) emit(n, row, rows, training, &out);
    }
    return out;
  }

 private:
  /// Which tensors are split by rows, and which live within one chunk only.
  void find_roles(const std::vector<galley_node>& backward, bool training) {
    chunkable_ = true;
    split_ = {graph_.marks.hidden};
    interior_.clear();
    std::vector<galley_node> nodes = forward_;
    nodes.insert(nodes.end(), backward.begin(), backward.end());
    for (const galley_node n : nodes) {
      const GraphNode& node = graph_.node(n);
      for (const galley_tensor t : written_by(node))
        if (graph_.tensor(t).written_forward()) chunkable_ = false;  // once a micro-batch
      bool by_rows = false;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const galley_tensor t = node.inputs[i];
        const galley_operand_rule* rule = input_rule(node.op, i);
        if (!t || !rule) continue;
        const bool is_input = graph_.tensor(t).kind == GALLEY_KIND_INPUT && rows_of(*rule, graph_.tensor(t).shape) == total_;
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
    for (const Section s : {Section::Forward, Section::Backward}) {
      for (const galley_node n : graph_.section(s)) {
        if (contains(n) || (s == Section::Backward && !training)) continue;
        for (const galley_tensor t : graph_.node(n).inputs) outside.insert(t);
        for (const galley_tensor t : graph_.node(n).outputs) outside.insert(t);
      }
    }
    for (const galley_node n : nodes)
      for (const galley_tensor t : graph_.node(n).outputs)
        if (t && split_.contains(t) && graph_.tensor(t).kind == GALLEY_KIND_TRANSIENT && !outside.contains(t) &&
            !(keep_logits_ && t == graph_.marks.logits))
          interior_.insert(t);
  }

  Ref range(galley_tensor t, const galley_operand_rule* rule, int64_t row, int64_t rows) {
    if (!t || !split_.contains(t) || rows == total_) return {t, 0, -1};
    if (!interior_.contains(t)) return {t, row, rows};
    const auto [it, fresh] = made_.try_emplace(t, 0);
    if (fresh) {
      GraphTensor x = graph_.tensor(t);
      const int64_t columns = x.count() / total_;
      x.shape = rule->flags & GALLEY_OPERAND_SAME_ROWS ? Shape{rows} : Shape{rows, columns};
      it->second = own_tensor(graph_, orders_, std::move(x));
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
      item.inputs.push_back(range(node.inputs[i], input_rule(node.op, i), row, rows));
      by_rows = by_rows || (node.inputs[i] && split_.contains(node.inputs[i]));
    }
    if (!by_rows && row > 0) return;  // nothing of it depends on the chunk: done once
    item.accumulate = node.accumulate;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const galley_operand_rule* rule = output_rule(node.op, i);
      item.outputs.push_back(range(node.outputs[i], rule, row, rows));
      if (row > 0 && node.outputs[i] && rule->role == GALLEY_ROLE_REDUCED) choose(item.accumulate, i);
    }
    out->push_back(std::move(item));
  }

  const Graph& graph_;
  Orders& orders_;
  bool keep_logits_;
  std::set<galley_node> members_;
  std::vector<galley_node> forward_, backward_;
  std::set<galley_tensor> split_, interior_;
  std::map<galley_tensor, galley_tensor> made_;  // interior tensor → this chunk's own
  int64_t total_ = 0;
  bool chunkable_ = true;
};

int64_t chunk_rows(const Graph& graph, const Target& target, const CompileOptions& options) {
  if (options.head_rows > 0) return options.head_rows;
  if (!graph.marks.logits) return INT64_MAX;
  const int64_t bytes_a_row = std::max<int64_t>(1, graph.tensor(graph.marks.logits).shape.back() * 4);
  // A number of the weight costs 6 operations a row, and 12 bytes a chunk: read twice in 16 bits, its gradient read and written in F32.
  const double peak = target.peak_flops(dtype_text(graph.tensor(graph.marks.hidden).dtype));
  const auto worth = static_cast<int64_t>(12 * peak / (6 * kTraffic * target.bandwidth()));
  int64_t memory = target.memories.empty() ? 0 : target.memories[0].capacity;
  if (options.memory_limit > 0) memory = std::min(memory, options.memory_limit);
  return std::max({kChunkRows, kChunkBytes / bytes_a_row, options.least_head ? 0 : std::min(worth, memory / kMemoryShare / bytes_a_row)});
}

/// Appends to a section's nodes, of which the last takes some rows of the hidden state, those that take these through the head, without
/// the loss.
std::vector<Item> sample_head(const Graph& graph, const Head& head, Orders& orders, Section section, galley_tensor* logits) {
  std::vector<Item> out;
  for (const galley_node n : graph.section(section)) out.push_back(whole(graph.node(n)));
  std::map<galley_tensor, galley_tensor> one = {{graph.marks.hidden, out.back().node->outputs[0]}};
  for (const galley_node n : head.forward()) {
    const GraphNode& node = graph.node(n);
    if (node.op->flags & GALLEY_OP_LOSS) continue;
    Item item = whole(node);
    for (Ref& r : item.inputs)
      if (const auto it = one.find(r.tensor); it != one.end()) r.tensor = it->second;
    for (Ref& r : item.outputs) {
      if (!r.tensor) continue;
      GraphTensor x = graph.tensor(r.tensor);
      x.shape = {graph.rows(), x.shape.back()};
      const galley_tensor made = own_tensor(graph, orders, std::move(x));
      one[r.tensor] = made;
      r.tensor = made;
    }
    out.push_back(std::move(item));
  }
  *logits = one[graph.marks.logits];
  return out;
}

/// A node that only an order has, beside another or in its place.
GraphNode& own_node(Orders& orders, const galley_op* op, const GraphNode& of, const char* suffix) {
  GraphNode& node = orders.nodes.emplace_back();
  node.op = op;
  node.name = of.name + suffix;
  node.block = of.block;
  node.use = of.use;
  node.section = of.section;
  return node;
}

/// A cast from the first input of an item to its first output, in the place of the item's node.
Item cast_item(const Compilation& c, const Item& item, Orders& orders) {
  GraphNode& node = own_node(orders, c.roles.copy, *item.node, ", cast");
  node.inputs = {item.node->inputs[0]};
  node.outputs = {item.node->outputs[0]};
  node.attrs.set("dtype", dtype_text(Tensors(c.graph, orders)[item.outputs[0].tensor].dtype));
  node.attr_view = node.attrs.view();
  Item out;
  out.node = &node;
  out.inputs = {item.inputs[0]};
  out.outputs = {item.outputs[0]};
  out.first_row = item.first_row;
  out.training = false;
  return out;
}

/// Outside training a node that only training has hands its input on. Where its readers read another dtype than its input has, they read
/// a cast: one that is there, or else one in its place.
std::vector<Item> without_training(const Compilation& c, std::vector<Item> items, Orders& orders, galley_tensor* logits) {
  const Tensors tensors(c.graph, orders);
  using Range = std::tuple<galley_tensor, int64_t, int64_t>;
  std::map<std::pair<Range, uint32_t>, Ref> casts;
  std::map<galley_tensor, Ref> handed;
  std::vector<Item> kept;
  const auto keep = [&](Item item) {
    const Ref from = item.inputs.empty() ? Ref() : item.inputs[0], to = item.outputs.empty() ? Ref() : item.outputs[0];
    if (item.node->op == c.roles.copy && to.rows < 0) casts[{{from.tensor, from.row, from.rows}, tensors[to.tensor].dtype}] = to;
    kept.push_back(std::move(item));
  };
  for (Item& item : items) {
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
    if (!(item.node->op->flags & GALLEY_OP_TRAINING_ONLY)) {
      keep(std::move(item));
      continue;
    }
    if (item.outputs.empty()) continue;  // it only writes a state
    const Ref from = item.inputs[0], to = item.outputs[0];
    const uint32_t dtype = tensors[to.tensor].dtype;
    const auto cast = casts.find({{from.tensor, from.row, from.rows}, dtype});
    if (tensors[from.tensor].dtype == dtype) handed[to.tensor] = from;
    else if (cast != casts.end()) handed[to.tensor] = cast->second;
    else keep(cast_item(c, item, orders));
  }
  if (const auto it = handed.find(*logits); *logits && it != handed.end()) *logits = it->second.tensor;
  return kept;
}

/// What stands for parameters where the model is evaluated, and for what is read in their place: their numbers in 16 bit.
Result<std::map<galley_tensor, galley_tensor>> evaluated(Compilation& c) {
  Graph& graph = c.graph;
  std::map<galley_tensor, galley_tensor> values;
  for (const ExportedValue& e : c.draft.evaluated) values[e.parameter] = e.value;
  const size_t count = c.draft.evaluated.empty() ? 0 : graph.tensor_count();
  for (galley_tensor t = 1; t <= count; ++t) {
    const GraphTensor& x = graph.tensor(t);
    const auto value = values.find(x.storage.numbers_of ? x.storage.numbers_of : copied_by(c, x));
    if (value == values.end()) continue;
    const GraphTensor& of = graph.tensor(value->second);
    const std::string name = of.name + " in " + dtype_text(x.dtype);
    galley_tensor made = 0;
    if (of.kind == GALLEY_KIND_TRANSIENT) {
      const Graph::As as(graph, {Section::Evaluate, of.use});
      AttrList attrs;
      attrs.set("dtype", dtype_text(x.dtype));
      std::vector<galley_tensor> out = {0};
      TRY(graph.append(c.roles.copy, name, {of.id}, std::move(attrs), &out));
      made = out[0];
    } else {
      GraphTensor view;
      view.name = name;
      view.shape = x.shape;
      view.dtype = x.dtype;
      view.kind = GALLEY_KIND_CONSTANT;
      view.storage.numbers_of = of.id;
      made = TRY(graph.make(std::move(view)));
    }
    if (!c.backward()) graph.tensor(t).unused = true;  // nobody else reads it
    values[t] = made;
  }
  return values;
}

/// Puts before each item what it reads that is made for evaluation.
std::vector<Item> with_evaluated(const Draft& draft, std::vector<Item> items) {
  const Graph& graph = draft.graph;
  if (graph.section(Section::Evaluate).empty()) return items;
  const Makers makers(draft, {Section::Evaluate});
  std::vector<Item> out;
  std::set<galley_node> done;
  for (Item& item : items) {
    for (const Ref& r : item.inputs)
      for (const galley_node n : makers.of(r.tensor, done)) {
        done.insert(n);
        out.push_back(whole(graph.node(n)));
        out.back().training = false;
      }
    out.push_back(std::move(item));
  }
  return out;
}

/// The nodes of the window part that the items cannot do without, and the one that begins the loss.
std::vector<Item> before_inference(const Graph& graph, const Roles& roles, const std::vector<Item>& items) {
  std::set<galley_tensor> read;
  for (const Item& item : items)
    for (const Ref& r : item.inputs) read.insert(r.tensor);
  std::vector<Item> out;
  const std::vector<galley_node>& nodes = graph.section(Section::Window);
  for (auto n = nodes.rbegin(); n != nodes.rend(); ++n) {
    const GraphNode& node = graph.node(*n);
    const bool needed = node.op == roles.loss_begin ||
                        std::any_of(node.outputs.begin(), node.outputs.end(), [&](galley_tensor t) { return t && read.contains(t); });
    if (!needed) continue;
    read.insert(node.inputs.begin(), node.inputs.end());
    out.insert(out.begin(), whole(node));
  }
  return out;
}

/// The items of a segment that infers: without what only training does, with what they need of the window part, and with the values that
/// stand for parameters.
std::vector<Item> to_infer(Compilation& c, std::vector<Item> items, const std::map<galley_tensor, galley_tensor>& stands,
                           galley_tensor* logits) {
  items = without_training(c, std::move(items), c.orders, logits);
  if (!items.empty()) {
    const std::vector<Item> before = before_inference(c.graph, c.roles, items);
    items.insert(items.begin(), before.begin(), before.end());
  }
  for (Item& item : items)
    for (Ref& r : item.inputs)
      if (const auto value = stands.find(r.tensor); value != stands.end()) r.tensor = value->second;
  return with_evaluated(c.draft, std::move(items));
}

/// After each chunk's loss, the count of the labels that its logits predict.
std::vector<Item> with_hits(Compilation& c, std::vector<Item> items) {
  std::vector<Item> out;
  GraphNode* node = nullptr;
  for (const Item& item : items) {
    out.push_back(item);
    if (item.node->op != c.roles.cross_entropy) continue;
    Item hits = item;
    hits.outputs = {{c.hits, 0, -1}};
    hits.accumulate = {node != nullptr};
    if (!node) {
      node = &own_node(c.orders, c.roles.label_hits, *item.node, ", hits");
      node->inputs = item.node->inputs;
      node->outputs = {c.hits};
    }
    hits.node = node;
    out.push_back(std::move(hits));
  }
  if (!node) c.hits = 0;
  return out;
}

/// The items that make a tensor.
std::vector<Item> makers_of(const std::vector<Item>& items, galley_tensor t) {
  std::set<galley_tensor> read = {t};
  std::vector<Item> out;
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    if (std::ranges::none_of(item->outputs, [&](const Ref& r) { return r.tensor && read.contains(r.tensor); })) continue;
    for (const Ref& r : item->inputs) read.insert(r.tensor);
    out.push_back(*item);
  }
  std::ranges::reverse(out);
  return out;
}

}  // namespace

Status order(Compilation& c) {
  const std::map<galley_tensor, galley_tensor> stands = TRY(evaluated(c));  // before orders number tensors of their own
  const Purpose purpose = c.options.purpose;
  const bool evaluates = purpose == Purpose::Evaluate || (purpose == Purpose::Train && c.options.evaluates);
  if (evaluates && c.options.counts_hits) c.hits = TRY(c.draft.scalars.in_block("scalar.hits", GALLEY_F64, 1, c.draft.scalars.reserve(8)));
  const Graph& graph = c.graph;
  Orders& out = c.orders;
  const int64_t chunk = chunk_rows(graph, c.target, c.options);
  c.program.head_rows = chunk == INT64_MAX ? 0 : chunk;
  Head head(graph, out, c.options.keep_logits);
  std::vector<Item> body, rows;
  for (const galley_node n : graph.section(Section::Forward))
    if (!head.contains(n)) (graph.node(n).op == c.roles.next_rows ? rows : body).push_back(whole(graph.node(n)));
  if (c.caches()) {
    if (c.program.cached.positions > 0) out.prompt = sample_head(graph, head, out, Section::Prompt, &c.prompt_logits);
    else
      for (const galley_node n : graph.section(Section::Prompt)) out.prompt.push_back(whole(graph.node(n)));  // the source
    out.prompt = to_infer(c, std::move(out.prompt), stands, &c.prompt_logits);
    out.next = to_infer(c, sample_head(graph, head, out, Section::Next, &c.next_logits), stands, &c.next_logits);
  }
  if (purpose == Purpose::Sample) {
    if (!c.caches()) {
      out.inference = body;
      for (Item& item : sample_head(graph, head, out, Section::Sample, &c.sample_logits)) out.inference.push_back(std::move(item));
    }
  } else if (purpose == Purpose::Embed) {
    c.sample_logits = graph.marks.output ? graph.marks.output : graph.marks.hidden;
    if (!c.sample_logits) return recipe_error("this model marks no hidden state to show");
    out.inference = makers_of(body, c.sample_logits);
  } else if (purpose == Purpose::Predict) {
    c.sample_logits = graph.marks.logits;
    if (!c.sample_logits) return recipe_error("this model marks no head to predict by");
    std::vector<Item> all = body;
    for (Item& item : Head(graph, out, true).unroll(chunk, false)) all.push_back(std::move(item));
    out.inference = makers_of(all, c.sample_logits);
  } else if (evaluates) {
    out.inference = body;
    Head evaluated(graph, out, c.options.keep_scores);
    for (Item& item : evaluated.unroll(chunk, false)) out.inference.push_back(std::move(item));
    if (c.hits) out.inference = with_hits(c, std::move(out.inference));
  }
  out.inference = to_infer(c, std::move(out.inference), stands, &c.sample_logits);
  if (c.backward()) {
    for (const galley_node n : graph.section(Section::Window)) out.window.push_back(whole(graph.node(n)));
    out.forward = std::move(rows);
    out.forward.insert(out.forward.end(), body.begin(), body.end());
    out.head = head.unroll(chunk, true);
    for (const galley_node n : graph.section(Section::Backward))
      if (!head.contains(n)) out.backward.push_back(whole(graph.node(n)));
  }
  // Gradients are for comparing with other programs, whose random numbers are others.
  if (purpose == Purpose::Gradients)
    for (std::vector<Item>* items : {&out.forward, &out.head, &out.backward})
      for (Item& item : *items) item.training = false;
  for (const galley_node n : graph.section(Section::Update)) out.update.push_back(whole(graph.node(n)));
  return ok();
}

}  // namespace galley
