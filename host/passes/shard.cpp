// Divides parameters, gradients and states between the processes of a run, as strategies claim it (ZeRO: Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", 2020, arXiv:1910.02054).
//
// A parameter, its gradient and its states are a family with one cut: each process updates its part of all of them. Parts are whole blocks
// of numbers, so large that every op of the update, every format and the sum of squares takes a part by itself, and by the same bits as it
// takes the part of a whole. If an op needs the whole tensor, one process has all of the family and computes the update alone: such owners
// are dealt out, the largest family first.
#include <algorithm>
#include <set>

#include "galley/format.h"
#include "galley/op.h"
#include "host/passes/constants.hpp"
#include "host/passes/passes.hpp"
#include "host/passes/place/pieces.hpp"

namespace galley {
namespace {

/// Bytes: parts of components begin at multiples, as the words of checksums do.
constexpr int64_t kAlignment = 8;
/// Numbers: parts of a tensor that no update writes begin at multiples.
constexpr int64_t kFrozenBlock = 64;

/// A parameter with all that its update writes.
struct Family {
  galley_tensor parameter = 0;
  std::set<galley_tensor> states;     ///< that nodes of the update read or write
  std::vector<galley_node> nodes;     ///< of the update
  std::vector<galley_tensor> copies;  ///< constants that are copies of the parameter
  bool read = false;                  ///< the model reads the parameter itself, and not its copies only
  bool claimed = false;               ///< parts of the gradient or of a state
  std::string whole;                  ///< why it stays whole; "": it does not
};

class Sharding {
 public:
  Sharding(Compilation& c, const galley_axis& axis) : c_(c), graph_(c.graph), axis_(axis) {}

  Status run() {
    find_families();
    find_nodes();
    find_writers();
    std::vector<const Family*> order;
    for (const auto& [parameter, family] : families_)
      if (wanted(family)) order.push_back(&family);
    std::stable_sort(order.begin(), order.end(), [&](const Family* a, const Family* b) { return count(*a) > count(*b); });
    load_.assign(static_cast<size_t>(axis_.ranks), 0);
    for (const Family* family : order) TRY_STATUS(divide(*family));
    return ok();
  }

 private:
  const GraphTensor& tensor(galley_tensor t) const { return graph_.tensor(t); }
  int64_t count(const Family& f) const { return tensor(f.parameter).count(); }
  /// Returns the parameter to which a tensor belongs; 0: none.
  galley_tensor about(galley_tensor t) const { return tensor(t).parameter_kind() ? t : tensor(t).parameter; }
  bool wanted(const Family& f) const { return f.claimed || tensor(f.parameter).storage.shard != GALLEY_SHARD_NO; }
  Family* family_of(galley_tensor t) {
    const auto at = t ? families_.find(about(t)) : families_.end();
    return at == families_.end() || !wanted(at->second) ? nullptr : &at->second;
  }

  void find_families() {
    for (galley_tensor t = 1; t <= graph_.tensor_count(); ++t)
      if (const GraphTensor& x = tensor(t); x.parameter_kind() && !x.unused && !x.storage.numbers_of && !x.shape.empty() && x.count() > 0)
        families_[t].parameter = t;
    for (auto& [t, family] : families_)
      if (const auto& part = tensor(t).part) keep_whole(family, "it is a part along the axis '" + std::string(part->axis) + "' already");
    for (galley_tensor t = 1; t <= graph_.tensor_count(); ++t) {
      const GraphTensor& x = tensor(t);
      const bool claims = (x.kind == GALLEY_KIND_STATE || x.kind == GALLEY_KIND_GRADIENT) && x.storage.shard != GALLEY_SHARD_NO;
      if (const auto at = families_.find(x.parameter); claims && at != families_.end()) at->second.claimed = true;
      if (const galley_tensor copied = x.unused ? 0 : copied_by(c_, x))
        if (const auto at = families_.find(copied); at != families_.end()) at->second.copies.push_back(t);
    }
    for (const Section s : {Section::Forward, Section::Backward, Section::Prompt, Section::Next, Section::Window})
      for (const galley_node n : graph_.section(s))
        for (const galley_tensor t : graph_.node(n).inputs)
          if (const galley_tensor base = t ? numbers_of(t) : 0)
            if (const auto at = families_.find(base); at != families_.end()) at->second.read = true;
  }
  galley_tensor numbers_of(galley_tensor t) const { return tensor(t).storage.numbers_of ? tensor(t).storage.numbers_of : t; }

  void keep_whole(Family& f, std::string why) {
    if (f.whole.empty()) f.whole = std::move(why);
  }

  /// Which nodes of the update are of which family.
  void find_nodes() {
    for (const galley_node n : graph_.section(Section::Update)) {
      const GraphNode& node = graph_.node(n);
      if (node.op == c_.roles.sum_squares) continue;
      std::set<Family*> families;
      for (const auto* operands : {&node.inputs, &node.outputs})
        for (const galley_tensor t : *operands)
          if (Family* f = family_of(t)) families.insert(f);
      for (Family* f : families) {
        if (!tensor(f->parameter).changes()) continue;  // it is read, by all processes
        f->nodes.push_back(n);
        if (families.size() > 1) keep_whole(*f, "'" + node.name + "' reads other parameters, too");
        for (const auto* operands : {&node.inputs, &node.outputs})
          for (const galley_tensor t : *operands)
            if (t && tensor(t).kind == GALLEY_KIND_STATE && about(t) == f->parameter) f->states.insert(t);
        for (const galley_tensor t : written_by(node))
          if (about(t) != f->parameter) keep_whole(*f, "'" + node.name + "' writes '" + tensor(t).name + "', which is the run's");
      }
    }
  }

  /// What other sections write is whole.
  void find_writers() {
    for (const Section s : {Section::Window, Section::Forward, Section::Backward, Section::Evaluate})
      for (const galley_node n : graph_.section(s))
        for (const galley_tensor t : written_by(graph_.node(n))) {
          const uint32_t kind = t ? tensor(t).kind : GALLEY_KIND_TRANSIENT;
          if (kind != GALLEY_KIND_PARAMETER && kind != GALLEY_KIND_STATE) continue;
          if (Family* f = family_of(t)) keep_whole(*f, "'" + graph_.node(n).name + "' writes '" + tensor(t).name + "' outside the update");
        }
  }

  /// Whether a node of the update takes a part of the family by itself: all that is the family's has the parameter's shape and goes by rows.
  bool takes_parts(const Family& f, const GraphNode& node) const {
    if (node.op->flags & GALLEY_OP_RANDOM || grain_of(node.op, tensor(f.parameter).shape) <= 0) return false;
    const auto fits = [&](galley_tensor t, const galley_operand_rule* rule) {
      if (!t) return true;
      if (!rule) return false;
      if (about(t) == f.parameter) return rule->role == GALLEY_ROLE_ROWS && tensor(t).shape == tensor(f.parameter).shape;
      return rule->role == GALLEY_ROLE_WHOLE || (rule->role == GALLEY_ROLE_ROWS && tensor(t).shape == tensor(f.parameter).shape);
    };
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (!fits(node.inputs[k], input_rule(node.op, k))) return false;
    for (size_t k = 0; k < node.outputs.size(); ++k)
      if (!fits(node.outputs[k], output_rule(node.op, k))) return false;
    return true;
  }

  /// The multiple of numbers at which parts of a tensor may begin, if they have to begin at those of `multiple`; `most`: at none.
  Result<int64_t> begins_at(const GraphTensor& t, int64_t multiple, int64_t most) {
    if (t.storage.format.empty()) return multiple;
    const std::vector<Component> components = TRY(components_of(c_.plugins, t, t.shape));
    for (size_t k = 0; k < components.size(); ++k) {
      const Component& x = components[k];
      if (x.numbers == 0 && k > 0) continue;
      if (x.numbers == 0 || elements(x.shape) != (t.count() + x.numbers - 1) / x.numbers) return most;
      const int64_t words = kAlignment / std::min(kAlignment, galley_dtype_bytes(x.dtype));
      multiple = multiple_of(multiple, x.numbers * words, most);
    }
    return multiple;
  }

  struct Blocks {
    int64_t numbers;  ///< of a block; all of the tensor's: it is not divided
    bool rows;        ///< blocks are whole rows
  };
  Result<Blocks> blocks_of(const Family& f) {
    const GraphTensor& parameter = tensor(f.parameter);
    const int64_t all = parameter.count(), columns = parameter.shape.back();
    const Blocks one = {all, false};
    if (f.nodes.empty()) {
      const int64_t numbers = TRY(begins_at(parameter, kFrozenBlock, all));
      return Blocks{std::min(numbers, all), false};
    }
    int64_t multiple = kCutBlock;
    bool rows = false;
    for (const galley_node n : f.nodes) {
      const GraphNode& node = graph_.node(n);
      if (!takes_parts(f, node)) return one;
      rows = rows || node.op->grain == GALLEY_GRAIN_ROW;
      multiple = multiple_of(multiple, grain_of(node.op, parameter.shape), all);
    }
    std::vector<galley_tensor> members(f.states.begin(), f.states.end());
    members.push_back(f.parameter);
    for (const galley_tensor t : members) multiple = TRY(begins_at(tensor(t), multiple, all));
    for (const bool by_rows : {false, true}) {
      if (rows && !by_rows) continue;
      const int64_t numbers = by_rows ? multiple_of(multiple, columns, all) : multiple;
      if (numbers >= all) return one;
      bool splits_all = true;
      for (const galley_tensor t : members) splits_all = splits_all && TRY(splits(c_, tensor(t), numbers, by_rows));
      if (splits_all) return Blocks{numbers, by_rows};
    }
    return one;
  }

  Status divide(const Family& f) {
    const GraphTensor& parameter = tensor(f.parameter);
    if (!f.whole.empty()) {
      c_.cuts.whole[f.parameter] = f.whole;
      return ok();
    }
    const Blocks blocks = TRY(blocks_of(f));
    const Cut cut = cut_of(parameter.count(), blocks);
    const bool master = parameter.storage.shard == GALLEY_SHARD_MASTER && !f.copies.empty() && !f.read;
    const bool divided = parameter.storage.shard == GALLEY_SHARD_YES || master;
    if (divided) c_.cuts.tensors[f.parameter] = cut;
    else if (!f.nodes.empty()) c_.cuts.gathered[f.parameter] = cut;
    if (parameter.storage.shard == GALLEY_SHARD_YES)
      for (const galley_tensor t : f.copies)
        if (plain_like(t, parameter)) c_.cuts.tensors[t] = cut;
    if (parameter.gradient) c_.cuts.tensors[parameter.gradient] = cut;
    for (const galley_tensor t : f.states)
      if (!tensor(t).shape.empty()) c_.cuts.tensors[t] = tensor(t).count() == parameter.count() ? cut : resized(cut, tensor(t).count());
    for (const galley_node n : f.nodes) c_.cuts.nodes[n] = cut;
    return ok();
  }
  bool plain_like(galley_tensor t, const GraphTensor& parameter) const {
    const GraphTensor& x = tensor(t);
    return x.shape == parameter.shape && x.storage.format.empty() && x.storage.placement.empty() && !x.storage.numbers_of;
  }

  /// Parts of whole blocks, as even as they come: who has one more changes from tensor to tensor.
  Cut cut_of(int64_t numbers, const Blocks& blocks) {
    const int64_t n = axis_.ranks, all = (numbers + blocks.numbers - 1) / blocks.numbers;
    Cut cut;
    cut.rank = axis_.rank;
    cut.rows = blocks.rows;
    for (int64_t j = 0, end = 0; j < n; ++j) {
      end += all / n + (j < all % n);
      cut.ends.push_back(std::min(end * blocks.numbers, numbers));
    }
    if (all % n) cut.start = std::min_element(load_.begin(), load_.end()) - load_.begin();
    for (int64_t r = 0; r < n; ++r) load_[static_cast<size_t>(r)] += cut.part(r).count;
    return cut;
  }
  /// The same owner's, of another size.
  static Cut resized(Cut cut, int64_t numbers) {
    for (int64_t& end : cut.ends) end = end ? numbers : 0;
    return cut;
  }

  Compilation& c_;
  const Graph& graph_;
  const galley_axis axis_;
  std::map<galley_tensor, Family> families_;
  std::vector<int64_t> load_;  ///< numbers that each process has
};

}  // namespace

Status shard(Compilation& c) {
  if (!c.trains() || !c.decisions.divides) return ok();
  return Sharding(c, *c.decisions.divides).run();
}

}  // namespace galley
