#include "host/tools/check/cases.hpp"

#include <algorithm>

#include "host/plan/dtype.hpp"
#include "host/plugins/abi.hpp"
#include "host/tools/check/tests.hpp"

namespace galley {
namespace {

/// Whether whole numbers of this name are the run's, and no places in another operand.
bool is_scalar(std::string_view name) {
  for (const std::string_view known : {"random", "apply", "step", "applied_step", "attempted_step", "found_inf"})
    if (name == known) return true;
  return false;
}

}  // namespace

NodeParts::NodeParts(const LoneNode& node, const Values& outputs, As as) : node_(node), outputs_(outputs), attrs_(node.attrs.view()) {
  add(node_.inputs, GALLEY_READ, as, in_);
  for (size_t i = 0; i < in_.size(); ++i)
    if (in_[i] && updates_input(node.op, i)) const_cast<galley_operand*>(in_[i])->access = GALLEY_READ_WRITE;
  add(outputs_, GALLEY_WRITE, as, out_);
  view_ = node_view({node.name, node.op, node.attrs, node.flags, node.first_row, node.block}, node.length, in_, out_, attrs_);
  view_.name = node_.name.c_str();
}

void NodeParts::add(const Values& operands, uint32_t access, As as, std::vector<const galley_operand*>& to) {
  for (const auto& n : operands) {
    if (!n) {
      to.push_back(nullptr);
      continue;
    }
    galley_operand& view = operands_.emplace_back(new_struct<galley_operand>());
    view.name = "";
    view.shape = n->shape.data();
    view.rank = static_cast<uint32_t>(n->shape.size());
    view.dtype = as == As::Doubles && n->floating() ? GALLEY_F64 : n->dtype;
    view.access = access;
    numbers_.push_back(&*n);
    to.push_back(&view);
  }
}

void NodeParts::place(const std::function<void*(const Numbers&)>& address) {
  for (size_t i = 0; i < operands_.size(); ++i) operands_[i].data = address(*numbers_[i]);
}

bool NodeParts::set(Flag flag) {
  if (flag == Flag::Node) view_.flags |= kUnknownFlag;
  if (flag == Flag::Operand && operands_.empty()) return false;
  if (flag == Flag::Operand) operands_.front().flags |= kUnknownFlag;
  if (flag != Flag::Attribute) return true;
  if (attrs_.empty()) return false;
  attr_ = read_struct(*attrs_.front());
  attr_.flags |= kUnknownFlag;
  attrs_.front() = &attr_;
  return true;
}

const char* NodeParts::name(Flag flag) {
  return flag == Flag::Node ? "its own" : flag == Flag::Operand ? "an operand's" : "an attribute's";
}

bool takes(const LoneNode& node) {
  if (!node.op->infer) return true;
  const NodeParts parts(node, {});
  std::vector<galley_shape> shapes(node.op->n_outputs, new_struct<galley_shape>());
  std::vector<galley_shape*> pointers;
  for (galley_shape& s : shapes) pointers.push_back(&s);
  return call_plugin(caller_of(node.op, node.op->name), "infer",
                     [&](galley_error* error) { return node.op->infer(node.op->self, &parts.view(), pointers.data(), error); })
      .ok();
}

std::vector<LoneNode> in_16_bit(const LoneNode& node) {
  std::vector<LoneNode> out;
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
    LoneNode other = node;
    bool changed = false;
    for (size_t i = 0; i < other.inputs.size(); ++i) {
      auto& n = other.inputs[i];
      if (!n || n->dtype != GALLEY_F32 || !(input_rule(node.op, i)->flags & (GALLEY_OPERAND_COMPUTE | GALLEY_OPERAND_ANY_DTYPE))) continue;
      const std::vector<double> numbers = n->floats;
      n->dtype = dtype;
      if (!numbers.empty()) n->set(numbers);
      changed = true;
    }
    if (changed) out.push_back(std::move(other));
  }
  return out;
}

std::vector<const galley_attr*> options_of(const AttrList& attrs) {
  std::vector<const galley_attr*> out;
  for (const galley_attr* a : attrs.view())
    if (std::string_view(a->name) != "dtype" && std::string_view(a->name) != "stream") out.push_back(a);
  return out;
}

std::vector<LoneFormat> in_formats(Plugins& plugins, const Numbers& numbers, const std::string& device, const std::string& isa) {
  const OpLookup ops = [&](std::string_view name) { return plugins.op(name).table; };
  std::vector<LoneFormat> out;
  for (const Registered<galley_format>& registered : plugins.formats()) {
    const galley_format& format = *registered.table;
    const galley_codec* const codec = plugins.codec(format.name, device, isa);
    const galley_op* const pack = format.pack_op ? ops(format.pack_op) : nullptr;
    const galley_op* const unpack = ops(format.unpack_op);
    if (!pack || !unpack || !pack->reference || !unpack->reference) continue;
    for (uint32_t c = 0; c < pack->n_cases; ++c) {
      std::mt19937_64 random(c);
      Result<LoneNode> node = LoneNode::of(pack, *pack->cases[c], random);
      if (!node || node->inputs.empty() || !node->inputs[0] || node->inputs[0]->dtype != numbers.dtype) continue;
      node->inputs[0] = numbers;
      for (size_t i = 1; i < node->inputs.size(); ++i) node->inputs[i].reset();  // random bits
      Result<Values> components = takes(*node) ? outputs_of(*node, ops) : run_error("another shape");
      if (!components) continue;
      LoneFormat& made = out.emplace_back(LoneFormat{{}, {pack, unpack}, std::move(*components)});
      made.format.name = format.name;
      for (const galley_attr* a : options_of(node->attrs)) made.format.attrs.set(*a);
      made.format.codec = codec;
      break;
    }
  }
  return out;
}

std::vector<OtherSize> other_sizes(const LoneNode& node, const galley_op_case& example, std::mt19937_64& random) {
  std::vector<OtherSize> out;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] && !is_floating(node.inputs[i]->dtype) && !is_scalar(input_rule(node.op, i)->name)) return out;
  // The operand with the most rows says how many there are.
  int64_t rows = 0;
  for (const auto& n : node.inputs)
    if (n && n->shape.size() > 1) rows = std::max(rows, n->shape.front());
  const auto with = [&](const std::string& what, bool fits, const auto& shape_of) {
    LoneNode other = node;
    bool changed = false;
    for (size_t i = 0; i < other.inputs.size(); ++i) {
      if (!node.inputs[i]) continue;
      const Shape shape = shape_of(i, node.inputs[i]->shape);
      if (shape == node.inputs[i]->shape) continue;
      changed = true;
      other.inputs[i] = Numbers::of(node.inputs[i]->dtype, shape);
      other.inputs[i]->draw(example.low[i], example.high[i], random);
    }
    if (changed) out.push_back({std::move(other), what, fits});
  };
  if (rows > 0)
    for (const int64_t other : {int64_t{1}, 2 * rows + 1})
      with(other == 1 ? "one row" : std::to_string(other) + " rows", true, [&](size_t, Shape shape) {
        if (shape.size() > 1 && shape.front() == rows) shape.front() = other;
        return shape;
      });
  for (size_t of = 0; of < node.inputs.size(); ++of)
    if (node.inputs[of] && node.inputs[of]->count() > 1 && node.inputs[of]->shape.size() > 1)
      with("input " + std::to_string(of) + " of a column less", false, [&](size_t i, Shape shape) {
        if (i == of && shape.back() > 1) --shape.back();
        return shape;
      });
  return out;
}

std::vector<OtherSize> with_ties(Plugins& plugins, const LoneNode& node, const galley_op_case& example, std::mt19937_64& random) {
  std::vector<OtherSize> out;
  const auto packs = [&](const Registered<galley_format>& format) {
    return format.table->pack_op && galley_same_text(format.table->pack_op, node.op->name);
  };
  if (node.inputs.empty() || !node.inputs[0] || node.inputs[0]->dtype != GALLEY_F32) return out;
  if (std::ranges::none_of(plugins.formats(), packs)) return out;
  // The largest codes of 4 and 8 bit, with and without sign; of BF16 what it has half of; of FP8.
  for (const int most : {7, 8, 15, 127, 256, 448}) {
    std::vector<double> numbers(static_cast<size_t>(node.inputs[0]->count()));
    for (double& x : numbers) {
      const uint64_t bits = random();
      // Halves of a power of two, so that products by a scale are exact; one in eight is the largest, which makes the scale.
      const uint64_t halves = bits % 8 == 0 ? 2 * most : (bits >> 4) % static_cast<uint64_t>(2 * most + 1);
      x = static_cast<double>(halves) / 512 * (example.low[0] < 0 && bits & 8 ? -1 : 1);
    }
    OtherSize& made = out.emplace_back(OtherSize{node, "with ties of rounding to codes up to " + std::to_string(most)});
    made.node.inputs[0]->set(numbers);
  }
  return out;
}

LoneNode empty(const LoneNode& node) {
  LoneNode out = node;
  for (auto& n : out.inputs)
    if (n && n->shape.size() > 1) {
      n->shape.front() = 0;
      *n = Numbers::of(n->dtype, n->shape);
    }
  return out;
}

LoneNode of_rows(const LoneNode& node, int64_t rows, int64_t first, int64_t n, size_t random, int64_t later) {
  LoneNode out = node;
  for (size_t i = 0; i < out.inputs.size(); ++i) {
    const galley_operand_rule& rule = *input_rule(node.op, i);
    if (!node.inputs[i] || rule.role != GALLEY_ROLE_ROWS) continue;
    const Numbers& from = *node.inputs[i];
    const int64_t width = from.count() / rows;
    out.inputs[i] = from.part(rule.flags & GALLEY_OPERAND_SAME_ROWS ? Shape{n} : Shape{n, width}, first * width, n * width);
  }
  if (random < out.inputs.size() && out.inputs[random]) reinterpret_cast<int64_t*>(out.inputs[random]->bytes.data())[2] += later;
  return out;
}

}  // namespace galley
