// Casts. Until here every number is F32; now nodes that compute in 16 bit get their operands so (op.h, "Dtypes").
//
// A tensor between nodes has the dtype that its readers want, where its writers can write it and the readers agree: so most casts are
// folded into the node before. Where readers differ it stays F32, and one cast makes the other dtype for all of them. What several nodes
// add to stays F32. Forward's tensors go by forward's readers alone, so that evaluation computes with the same numbers as training.
//
// A parameter is its own master. A node that computes in 16 bit reads
//   of a frozen one whose readers all compute so: its bytes, which are kept in that dtype only;
//   of one in a format: what the format unpacks in that dtype;
//   of any other: a constant that is derived from it, or where COMPUTE says so, a cast made for this node alone.
// The second and the cast are views: tensors without bytes of their own, which `place` makes where a node reads them.
#include <algorithm>
#include <map>
#include <set>

#include "galley/op.h"
#include "host/passes/passes.hpp"
#include "host/passes/strategies.hpp"

namespace galley {
namespace {

bool is_16_bit(uint32_t dtype) { return dtype == GALLEY_BF16 || dtype == GALLEY_F16; }
uint64_t flags_of(const galley_operand_rule* rule) { return rule ? rule->flags : 0; }

class Caster {
 public:
  Caster(Compilation& c, std::vector<Section> sections) : c_(c), graph_(c.graph), sections_(std::move(sections)) {}
  bool model() const { return sections_.front() == Section::Forward; }

  Status run() {
    for (const Section s : sections_)
      for (const galley_node n : graph_.section(s)) take(graph_.node(n));
    for (galley_tensor t = 1; t <= graph_.tensor_count(); ++t)
      any_ = any_ || (graph_.tensor(t).kind == GALLEY_KIND_GRADIENT && is_16_bit(graph_.tensor(t).dtype));
    if (!any_) return ok();
    find_read_elsewhere();
    for (const auto& [t, writers] : writers_) choose(t, writers);
    for (const Section s : sections_)
      for (const galley_node n : graph_.section(s)) agree(graph_.node(n));
    if (model())
      for (const auto& [t, wants] : parameters_) keep_in_16_bit(t, wants);
    for (const Section s : sections_) TRY_STATUS(rebuild(s));
    return ok();
  }

 private:
  struct Writer {
    galley_node node;
    size_t output;
  };

  // ---- What nodes compute in ---------------------------------------------------------------------------------------------------

  /// Of a node of backward: the forward node whose claims hold for it.
  const GraphNode& claimed(const GraphNode& node) const { return node.products.dtype || !node.origin ? node : graph_.node(node.origin); }

  /// The 16-bit dtype in which all writers of a transient compute, who can all write it; else 0.
  uint32_t low(galley_tensor t) const {
    const auto it = writers_.find(t);
    if (it == writers_.end()) return 0;
    uint32_t dtype = 0;
    for (const Writer& w : it->second) {
      const uint32_t computes = compute_.at(w.node);
      if (!is_16_bit(computes) || (dtype && dtype != computes)) return 0;
      if (!(flags_of(output_rule(graph_.node(w.node).op, w.output)) & GALLEY_OPERAND_ANY_DTYPE)) return 0;
      dtype = computes;
    }
    return dtype;
  }

  uint32_t compute_of(const GraphNode& node) const {
    if (node.products.dtype) return node.products.dtype;
    const uint64_t flags = node.op->flags;
    if (flags & GALLEY_OP_FULL) return GALLEY_F32;
    if (flags & GALLEY_OP_LOW) return claimed(node).products.dtype ? claimed(node).products.dtype : GALLEY_F32;
    uint32_t dtype = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i] || !(flags_of(input_rule(node.op, i)) & GALLEY_OPERAND_COMPUTE)) continue;
      const uint32_t its = low(node.inputs[i]);
      if (!its || (dtype && dtype != its)) return GALLEY_F32;
      dtype = its;
    }
    return dtype ? dtype : GALLEY_F32;
  }

  void take(const GraphNode& node) {
    const uint32_t computes = compute_of(node);
    compute_[node.id] = computes;
    any_ = any_ || is_16_bit(computes);
    if ((node.op->flags & GALLEY_OP_LOW) && claimed(node).products.tf32) {
      GraphNode& says = graph_.node(node.id);
      says.attrs.set("tf32", int64_t{1});
      says.attr_view = says.attrs.view();
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const galley_tensor t = node.inputs[i];
      if (!t || graph_.tensor(t).dtype != GALLEY_F32) continue;
      const GraphTensor& x = graph_.tensor(t);
      const uint32_t wants = wanted(node, i);
      if (x.parameter_kind()) parameters_[t].insert(wants ? wants : computes);
      else if (wants) wants_[t].emplace_back(node.section, wants);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] && graph_.tensor(node.outputs[i]).kind == GALLEY_KIND_TRANSIENT)
        writers_[node.outputs[i]].push_back({node.id, i});
  }

  /// The dtype that input i has to have; 0: whatever it is.
  uint32_t wanted(const GraphNode& node, size_t i) const {
    const uint64_t flags = flags_of(input_rule(node.op, i));
    if (flags & GALLEY_OPERAND_COMPUTE) return compute_.at(node.id);
    return flags & GALLEY_OPERAND_ANY_DTYPE ? 0 : GALLEY_F32;
  }

  // ---- What tensors are --------------------------------------------------------------------------------------------------------

  void choose(galley_tensor t, const std::vector<Writer>& writers) {
    GraphTensor& x = graph_.tensor(t);
    const GraphNode& writer = graph_.node(writers.front().node);
    const bool can = flags_of(output_rule(writer.op, writers.front().output)) & GALLEY_OPERAND_ANY_DTYPE;
    if (x.dtype != GALLEY_F32 || writers.size() > 1 || !can || read_by_host(t) || read_elsewhere_.contains(t)) return;
    std::set<uint32_t> wants;
    for (const auto& [section, dtype] : wants_[t])
      if (section == writer.section) wants.insert(dtype);
    if (wants.empty()) wants = {compute_.at(writer.id)};
    if (wants.size() == 1) x.dtype = *wants.begin();
  }

  /// What a node of the window makes for forward, whose casts are there already.
  void find_read_elsewhere() {
    for (size_t s = 0; s < section_names.size(); ++s) {
      if (std::ranges::find(sections_, static_cast<Section>(s)) != sections_.end()) continue;
      for (const galley_node n : graph_.section(static_cast<Section>(s)))
        for (const galley_tensor t : graph_.node(n).inputs)
          if (writers_.contains(t)) read_elsewhere_.insert(t);
    }
  }

  bool read_by_host(galley_tensor t) const {
    if (t == graph_.marks.logits) return true;
    for (const Reported& r : c_.draft.signals.reports)
      if (r.tensor == t) return true;
    return false;
  }

  /// One attribute holds for all outputs of a node that may have any dtype.
  void agree(const GraphNode& node) {
    std::set<uint32_t> dtypes;
    uint32_t fixed = GALLEY_F32;  // a gradient's is claimed
    for (const galley_tensor t : any_outputs(node)) {
      const GraphTensor& x = graph_.tensor(t);
      dtypes.insert(x.dtype);
      if (x.kind != GALLEY_KIND_TRANSIENT) fixed = x.dtype;
    }
    if (dtypes.size() < 2) return;
    for (const galley_tensor t : any_outputs(node)) graph_.tensor(t).dtype = fixed;
  }

  std::vector<galley_tensor> any_outputs(const GraphNode& node) const {
    std::vector<galley_tensor> out;
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] && flags_of(output_rule(node.op, i)) & GALLEY_OPERAND_ANY_DTYPE) out.push_back(node.outputs[i]);
    return out;
  }

  void keep_in_16_bit(galley_tensor t, const std::set<uint32_t>& wants) {
    GraphTensor& x = graph_.tensor(t);
    if (!x.changes() && x.storage.format.empty() && wants.size() == 1 && is_16_bit(*wants.begin())) x.storage.kept_dtype = *wants.begin();
  }

  // ---- Casts -------------------------------------------------------------------------------------------------------------------

  Status rebuild(Section s) {
    const std::vector<galley_node> before = std::move(graph_.section(s));
    graph_.section(s).clear();
    for (const galley_node n : before) {
      TRY_STATUS(fit(n));
      graph_.section(s).push_back(n);
      // What was cast of a tensor that it writes is not that one's numbers any more.
      for (const galley_tensor t : written_by(graph_.node(n))) casts_.erase(t);
    }
    return ok();
  }

  /// Gives a node its operands in the dtypes that it reads, and says to it which dtype it writes.
  Status fit(galley_node n) {
    bool low = is_16_bit(compute_.at(n));
    for (size_t i = 0; i < graph_.node(n).inputs.size(); ++i) {
      const galley_tensor t = graph_.node(n).inputs[i];
      if (!t || updates_input(graph_.node(n).op, i)) continue;
      const galley_tensor fits = TRY(fitting(graph_.node(n), i));
      GraphNode& reader = graph_.node(n);
      if (fits != t && reader.given.empty()) reader.given = reader.inputs;
      graph_.set_input(n, i, fits);
      low = low || is_16_bit(graph_.tensor(fits).dtype);
    }
    GraphNode& node = graph_.node(n);
    const std::vector<galley_tensor> outputs = any_outputs(node);
    for (const galley_tensor t : outputs) low = low || is_16_bit(graph_.tensor(t).dtype);
    if (!low) return ok();
    if (!outputs.empty()) {
      node.attrs.set("dtype", dtype_text(graph_.tensor(outputs.front()).dtype));
      node.attr_view = node.attrs.view();
    }
    if (n < c_.inferred.size()) c_.inferred[n].clear();
    return ok();
  }

  Result<galley_tensor> fitting(const GraphNode& node, size_t i) {
    const galley_tensor t = node.inputs[i];
    const GraphTensor& x = graph_.tensor(t);
    if (x.dtype != GALLEY_F32 && !is_16_bit(x.dtype)) return t;
    uint32_t wants = wanted(node, i);
    if (lasts(x.kind)) {
      const uint32_t computes = compute_.at(node.id);
      if (x.storage.kept_dtype && (!wants || wants == x.storage.kept_dtype)) return view(t, x.storage.kept_dtype);
      if (x.storage.kept_dtype) return t;  // `place` casts it for this node
      if (!wants && !x.storage.format.empty() && is_16_bit(computes)) wants = computes;
      if (!wants || wants == x.dtype) return t;
      const bool derives =
          model() && !x.written_forward() && x.storage.format.empty() && claimed(node).products.weights == GALLEY_WEIGHTS_DERIVED;
      return derives ? derived(node, t, wants) : view(t, wants);
    }
    if (!wants || wants == x.dtype) return t;
    const auto [at, fresh] = casts_[t].try_emplace(wants, 0);
    if (fresh) at->second = TRY(cast(node, t, wants));
    return at->second;
  }

  /// Before the node that reads it, for all that read it later.
  Result<galley_tensor> cast(const GraphNode& reader, galley_tensor t, uint32_t dtype) {
    const Graph::As as(graph_, {reader.section, no_use, reader.block, reader.origin});
    AttrList attrs;
    attrs.set("dtype", dtype_text(dtype));
    std::vector<galley_tensor> out = {0};
    const std::string name = graph_.tensor(t).name + " in " + dtype_text(dtype) + (reader.section == Section::Backward ? ", backward" : "");
    const galley_node made = TRY(graph_.append(c_.roles.copy, name, {t}, std::move(attrs), &out));
    compute_[made] = GALLEY_F32;
    return out[0];
  }

  Result<galley_tensor> view(galley_tensor of, uint32_t dtype) {
    const auto [at, fresh] = views_.try_emplace({of, dtype}, 0);
    if (!fresh) return at->second;
    GraphTensor x = same(of, dtype);
    x.name = graph_.tensor(of).name + "." + dtype_text(dtype);
    // Sections are cast in turns: an earlier one may read the same view.
    if (const galley_tensor there = graph_.find(x.name); there && graph_.tensor(there).storage.numbers_of == of) return at->second = there;
    x.storage.numbers_of = of;
    return at->second = TRY(graph_.make(std::move(x)));
  }

  Result<galley_tensor> derived(const GraphNode& node, galley_tensor of, uint32_t dtype) {
    const auto [at, fresh] = derived_.try_emplace({of, dtype}, 0);
    if (!fresh) return at->second;
    const Graph::As as(graph_, {node.section, claimed(node).products.use});
    GraphTensor x = same(of, dtype);
    x.initial.op = c_.roles.copy->name;
    x.initial.inputs = {of};
    x.initial.attrs.set("dtype", dtype_text(dtype));
    return at->second = TRY(graph_.make(std::move(x)));
  }

  GraphTensor same(galley_tensor of, uint32_t dtype) const {
    GraphTensor x;
    x.name = graph_.tensor(of).name + " in " + dtype_text(dtype);
    x.shape = graph_.tensor(of).shape;
    x.dtype = dtype;
    x.kind = GALLEY_KIND_CONSTANT;
    return x;
  }

  Compilation& c_;
  Graph& graph_;
  std::vector<Section> sections_;
  bool any_ = false;                                                          ///< a node computes in 16 bit
  std::map<galley_node, uint32_t> compute_;                                   ///< what each computes in
  std::map<galley_tensor, std::vector<Writer>> writers_;                      ///< of transients
  std::map<galley_tensor, std::vector<std::pair<Section, uint32_t>>> wants_;  ///< of each reader that minds
  std::set<galley_tensor> read_elsewhere_;                                    ///< transients that a node of another section reads
  std::map<galley_tensor, std::set<uint32_t>> parameters_;                    ///< what their readers read or compute in
  std::map<galley_tensor, std::map<uint32_t, galley_tensor>> casts_;          ///< of a tensor as it is now
  std::map<std::pair<galley_tensor, uint32_t>, galley_tensor> views_, derived_;
};

}  // namespace

/// GALLEY_PLACEMENT_MASTER: what nodes read is known now.
Status place_masters(Compilation& c) {
  Graph& graph = c.graph;
  std::set<galley_tensor> read, copied;
  for (const Section s : {Section::Forward, Section::Backward})
    for (const galley_node n : graph.section(s))
      for (const galley_tensor t : graph.node(n).inputs)
        if (t) read.insert(graph.tensor(t).storage.numbers_of ? graph.tensor(t).storage.numbers_of : t);
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t)
    if (graph.tensor(t).kind == GALLEY_KIND_CONSTANT && is_16_bit(graph.tensor(t).dtype))
      copied.insert(graph.tensor(t).initial.inputs.begin(), graph.tensor(t).initial.inputs.end());
  const GraphTensor* claimed = nullptr;
  bool moves = false;
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t) {
    GraphTensor& x = graph.tensor(t);
    if (x.storage.master_placement.empty()) continue;
    claimed = &x;
    if (!copied.contains(t) || read.contains(t)) continue;
    x.storage.placement = x.storage.master_placement;
    moves = true;
  }
  if (!claimed || moves) return ok();
  return recipe_error(label(c.strategies, claimed->storage.placement_use) + " moves masters to '" + claimed->storage.master_placement +
                          "', but no parameter has a copy in 16 bit that all its readers read",
                      "compute in 16 bit with a copy of the weights beside it, or leave masters where they are");
}

Status cast(Compilation& c) {
  TRY_STATUS(Caster(c, {Section::Forward, Section::Backward}).run());
  return place_masters(c);
}

Status cast_made(Compilation& c) {
  TRY_STATUS(Caster(c, {Section::Window}).run());
  return Caster(c, {Section::Update}).run();
}

}  // namespace galley
