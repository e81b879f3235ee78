// Generation keeps the keys and values of the positions that it has seen, so that a new token costs the work of one position. The forward
// graph is of whole rows and stays as it is; two others are made of it, over the same parameters: of the positions of a prompt that are
// taken at once, and of one position. In both, attention puts its keys and values into caches, and reads all of them from there.
//
// That is right where every other node works row by row, as its op's roles promise. Where one does not, where attention looks ahead, or
// where an input says something of a row's end, the program has no caches: each token is then made from the whole row.
//
// Of a model with a source, the first part is what depends on the source alone: what the other part reads of it is kept, too.
#include <algorithm>
#include <map>
#include <set>

#include "galley/op.h"
#include "host/passes/makers.hpp"
#include "host/passes/passes.hpp"

namespace galley {
namespace {

int64_t integer(const GraphNode& node, const char* name, int64_t otherwise) {
  const galley_attr* attr = node.attrs.find(name);
  return attr ? *static_cast<const int64_t*>(attr->data) : otherwise;
}

/// Operands of attention and of cached_attention.
enum : size_t { kQ, kK, kV, kFirstKey, kLastKey, kSlopes, kBias, kLast };

/// What a node of forward differs by. One that is made of parameters alone, or of what a source says, is the same for all positions.
enum class By : uint8_t { Nothing, Source, Position };

/// The nodes of forward up to the last hidden state.
class Body {
 public:
  explicit Body(const Compilation& c) : c_(c), graph_(c.graph), has_source_(graph_.extents().target_length > 0) {
    const std::vector<galley_node> head = head_nodes(graph_);
    const std::set<galley_node> members(head.begin(), head.end());
    for (const galley_node n : graph_.section(Section::Forward))
      if (!members.contains(n)) nodes_.push_back(n);
  }
  bool has_source() const { return has_source_; }
  const std::vector<galley_node>& nodes() const { return nodes_; }
  By by(galley_node n) const { return by_.at(n); }
  /// What the nodes by position read of those by source.
  const std::set<galley_tensor>& kept() const { return kept_; }
  /// Whether an input has numbers for each position that is generated.
  bool by_position(const GraphTensor& input) const { return !has_source_ || info_of(input.fill).extent == FillExtent::Target; }

  /// Says why the nodes cannot be made of some positions alone; "": they can.
  std::string refusal() {
    for (const galley_node n : nodes_)
      if (std::string why = refusal(graph_.node(n)); !why.empty()) return why;
    return "";
  }

 private:
  By by_of(galley_tensor t) {
    const GraphTensor& x = graph_.tensor(t);
    if (x.kind == GALLEY_KIND_INPUT) return by_position(x) ? By::Position : By::Source;
    const auto found = made_.find(t);
    return found == made_.end() ? By::Nothing : found->second;
  }

  std::string refusal(const GraphNode& node) {
    By by = By::Nothing;
    for (const galley_tensor t : node.inputs)
      if (t) by = std::max(by, by_of(t));
    by_[node.id] = by;
    for (const galley_tensor t : node.outputs) made_[t] = by;
    if (by != By::Position) return "";
    const std::string who = "node '" + node.name + "'";
    const bool attention = node.op == c_.roles.attention, across = attention && is_across(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const galley_tensor t = node.inputs[i];
      if (!t) continue;
      const GraphTensor& x = graph_.tensor(t);
      const By its = by_of(t);
      if (its == By::Source) {
        if (x.kind == GALLEY_KIND_INPUT || !x.producer || graph_.node(x.producer).op->flags & GALLEY_OP_TRAINING_ONLY)
          return who + " reads '" + x.name + "' of the source";
        kept_.insert(t);
      }
      if (its != By::Position) continue;
      const bool bound = x.fill == Fill::SourceFirst || x.fill == Fill::SourceLast;
      const bool counted =
          x.fill == Fill::Tokens || x.fill == Fill::Positions || x.fill == Fill::TargetTokens || x.fill == Fill::TargetPositions;
      // Every text begins with its row.
      const bool begin = attention && !across && i == kFirstKey && x.fill == Fill::FirstKey;
      if (x.kind == GALLEY_KIND_INPUT && !counted && !begin && !(across && bound)) return who + " reads the input '" + x.name + "'";
      if (!attention && input_rule(node.op, i)->role != GALLEY_ROLE_ROWS)
        return "op '" + std::string(node.op->name) + "' of " + who + " does not work row by row";
    }
    if (attention && !across && (!integer(node, "causal", 1) || node.inputs[kLastKey])) return "attention of " + who + " looks ahead";
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (updates_input(node.op, i) && !(node.op->flags & GALLEY_OP_TRAINING_ONLY)) return who + " keeps something from row to row";
    return "";
  }

  /// Of attention to the source: its keys and values are there, and neither distances nor a window depend on where a query is.
  bool is_across(const GraphNode& node) {
    return node.inputs[kK] && node.inputs[kV] && by_of(node.inputs[kK]) != By::Position && by_of(node.inputs[kV]) != By::Position &&
           !integer(node, "causal", 1) && !integer(node, "window", 0) && !node.inputs[kSlopes] && !node.inputs[kBias];
  }

  const Compilation& c_;
  const Graph& graph_;
  const bool has_source_;
  std::vector<galley_node> nodes_;
  std::map<galley_node, By> by_;
  std::map<galley_tensor, By> made_;
  std::set<galley_tensor> kept_;
};

/// Makes the body again, of so many positions of each row.
class Positions {
 public:
  /// `positions` 0: the source.
  Positions(Compilation& c, const Body& body, Section section, int64_t positions, std::map<std::string, galley_tensor>& caches)
      : c_(c),
        graph_(c.graph),
        body_(body),
        section_(section),
        positions_(positions),
        caches_(caches),
        suffix_(section == Section::Next ? " of one" : "") {}

  Status run() {
    const By left_out = positions_ == 0 ? By::Position : By::Source;
    for (const galley_node n : body_.nodes()) {
      if (body_.by(n) == left_out) continue;
      const GraphNode node = graph_.node(n);
      const Graph::As as(graph_, {section_, node.use, node.block});
      std::vector<galley_tensor> inputs, outputs(node.outputs.size(), 0);
      const bool attends = node.op == c_.roles.attention && positions_ > 0 && integer(node, "causal", 1);
      for (size_t i = 0; i < node.inputs.size(); ++i)
        inputs.push_back(node.inputs[i] && !(attends && i == kFirstKey) ? TRY(here(node.inputs[i])) : 0);
      if (attends) {
        outputs[0] = TRY(attend(node, std::move(inputs)));
      } else {
        for (size_t i = 0; i < node.outputs.size(); ++i)
          if (const galley_tensor t = node.outputs[i]; body_.kept().contains(t)) outputs[i] = TRY(kept(t));
          else if (t && graph_.tensor(t).kind != GALLEY_KIND_TRANSIENT) outputs[i] = t;
        const galley_node made = TRY(graph_.append(node.op, node.name + suffix_, std::move(inputs), node.attrs, &outputs, node.accumulate));
        graph_.node(made).products = node.products;
      }
      for (size_t i = 0; i < node.outputs.size(); ++i)
        if (node.outputs[i]) made_[node.outputs[i]] = outputs[i];
    }
    if (positions_ == 0) return ok();
    const Graph::As as(graph_, {section_});
    std::vector<galley_tensor> row = {0};
    TRY(graph_.append(c_.roles.take_rows, "sample.hidden" + suffix_, {made_.at(graph_.marks.hidden), graph_.marks.position}, {}, &row));
    return ok();
  }

 private:
  /// What is read here in the place of a tensor of forward.
  Result<galley_tensor> here(galley_tensor t) {
    if (const auto made = made_.find(t); made != made_.end()) return made->second;
    if (body_.kept().contains(t)) return kept(t);
    const GraphTensor& x = graph_.tensor(t);
    if (x.kind != GALLEY_KIND_INPUT || t == graph_.marks.position || !body_.by_position(x)) return t;
    GraphTensor input = x;
    input.name += section_ == Section::Next ? " of one" : " of a prompt";
    input.shape.at(1) = positions_;
    const galley_tensor made = TRY(graph_.make(std::move(input)));
    (section_ == Section::Next ? c_.next_inputs : c_.prompt_inputs).push_back(made);
    return made_[t] = made;
  }

  /// A cache of what a source says, which is written once.
  Result<galley_tensor> kept(galley_tensor t) {
    const GraphTensor& x = graph_.tensor(t);
    return cache_of(x.name + " kept", x.dtype, x.shape);
  }

  Result<galley_tensor> cache_of(const std::string& name, uint32_t dtype, const Shape& shape) {
    galley_tensor& cache = caches_[name];
    if (cache) return cache;
    GraphTensor made;
    made.name = name;
    made.kind = GALLEY_KIND_CACHE;
    made.dtype = dtype;
    made.shape = shape;
    return cache = TRY(graph_.make(std::move(made)));
  }

  struct Columns {
    int64_t groups, column, width;
    void set(AttrList& attrs) const {
      attrs.set("groups", groups);
      attrs.set("column", column);
      attrs.set("width", width);
    }
  };

  /// Keys or values; scales where they are codes of 8 bit, one for 32.
  struct Cache {
    galley_tensor numbers, scales;
  };

  Result<Cache> cached(const GraphNode& node, const char* what, galley_tensor from, const Columns& columns) {
    const std::string name = node.name + "." + what;
    const int64_t width = columns.groups * columns.width;
    Shape shape = {graph_.rows(), body_.has_source() ? graph_.extents().target_length : graph_.length(), width};
    Cache out = {TRY(cache_of(name, c_.options.int8_cache ? GALLEY_I8 : graph_.tensor(from).dtype, shape)), 0};
    shape.back() = (width + 31) / 32;
    if (c_.options.int8_cache) out.scales = TRY(cache_of(name + ".scales", GALLEY_BF16, shape));
    std::vector<galley_tensor> inputs = {out.numbers, from, graph_.marks.start}, nothing;
    if (out.scales) inputs.push_back(out.scales);
    AttrList attrs;
    columns.set(attrs);
    TRY(graph_.append(c_.roles.cache_rows, name + " kept" + suffix_, std::move(inputs), std::move(attrs), &nothing));
    return out;
  }

  /// attention(q, k, v) as cached_attention(q, caches), of q, k and v in one tensor or in three.
  Result<galley_tensor> attend(const GraphNode& node, std::vector<galley_tensor> in) {
    in.resize(kLast, 0);
    const int64_t heads = integer(node, "heads", 0), kv_heads = integer(node, "kv_heads", heads);
    const bool packed = !in[kK] && !in[kV];
    const int64_t parts = packed ? heads + 2 * kv_heads : heads, D = graph_.tensor(in[kQ]).shape.back() / parts;
    galley_tensor q = in[kQ];
    Cache k, v;
    if (packed) {
      const bool by_head = integer(node, "by_head", 0) != 0;
      const auto of = [&](int64_t which, int64_t count, int64_t first) {
        return by_head ? Columns{heads, which * D, D} : Columns{1, first * D, count * D};
      };
      AttrList attrs;
      of(0, heads, 0).set(attrs);
      std::vector<galley_tensor> taken = {0};
      TRY(graph_.append(c_.roles.take_columns, node.name + ".q" + suffix_, {in[kQ]}, std::move(attrs), &taken));
      q = taken[0];
      k = TRY(cached(node, "k", in[kQ], of(1, kv_heads, heads)));
      v = TRY(cached(node, "v", in[kQ], of(2, kv_heads, heads + kv_heads)));
    } else {
      k = TRY(cached(node, "k", in[kK], {1, 0, kv_heads * D}));
      v = TRY(cached(node, "v", in[kV], {1, 0, kv_heads * D}));
    }
    AttrList attrs;
    for (const char* name : {"heads", "kv_heads", "head_dim", "scale", "softcap", "window", "max_distance", "dtype"})
      if (const galley_attr* attr = node.attrs.find(name)) attrs.set(*attr);
    std::vector<galley_tensor> inputs = {q, k.numbers, v.numbers, 0, 0, in[kSlopes], in[kBias], graph_.marks.start}, out = {0};
    if (k.scales) inputs.insert(inputs.end(), {k.scales, v.scales});
    TRY(graph_.append(c_.roles.cached_attention, node.name + suffix_, std::move(inputs), std::move(attrs), &out));
    return out[0];
  }

  Compilation& c_;
  Graph& graph_;
  const Body& body_;
  const Section section_;
  const int64_t positions_;
  std::map<std::string, galley_tensor>& caches_;
  const std::string suffix_;
  std::map<galley_tensor, galley_tensor> made_;  // by the tensor of forward
};

}  // namespace

Status cache(Compilation& c) {
  if (c.options.prompt_positions == 0 || !c.graph.marks.hidden) return ok();
  Body body(c);
  c.program.uncached = body.refusal();
  if (!c.program.uncached.empty()) return ok();
  Graph& graph = c.graph;
  GraphTensor start;
  start.name = "sample start";
  start.dtype = GALLEY_I32;
  start.shape = {graph.rows()};
  start.kind = GALLEY_KIND_INPUT;
  graph.marks.start = TRY(graph.make(std::move(start)));
  const size_t before = graph.tensor_count();
  std::map<std::string, galley_tensor> caches;
  c.program.cached.positions = body.has_source() ? 0 : std::min(c.options.prompt_positions, graph.length());
  TRY_STATUS(Positions(c, body, Section::Prompt, c.program.cached.positions, caches).run());
  TRY_STATUS(Positions(c, body, Section::Next, 1, caches).run());
  if (c.options.purpose != Purpose::Sample) {
    for (const auto& [name, t] : caches) c.caches_anew.insert(t);
    return ok();
  }
  for (galley_tensor t = 1; t <= before; ++t) {  // what forward reads, the two others read in their own inputs
    GraphTensor& x = graph.tensor(t);
    if (x.kind == GALLEY_KIND_INPUT && t != graph.marks.start && t != graph.marks.position) x.unused = body.by_position(x);
  }
  return ok();
}

}  // namespace galley
