#include "host/plan/program.hpp"

#include <algorithm>
#include <utility>

#include "host/plugins/abi.hpp"

namespace galley {

bool Instruction::exchanges() const { return launch() && launch()->op() && launch()->op()->flags & GALLEY_OP_EXCHANGE; }

AlongAxis along_axis(const Instruction& exchange) {
  const AttrList& attrs = exchange.launch()->nodes.front().attrs;
  return {attrs.integer("ranks", 1), attrs.integer("stride", 1)};
}

int64_t AttrList::integer(const std::string& name, int64_t otherwise) const {
  const galley_attr* const attr = find(name);
  return attr && attr->type == GALLEY_ATTR_I64 && attr->count == 1 ? *static_cast<const int64_t*>(attr->data) : otherwise;
}

bool Segment::exchanges() const { return std::ranges::any_of(code, &Instruction::exchanges); }

std::string dtype_text(uint32_t dtype) {
  static constexpr std::array<const char*, 12> names = {"?", "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "u16", "u32"};
  return names[dtype < names.size() ? dtype : 0];
}

uint32_t dtype_named(const std::string& name) {
  for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
    if (dtype_text(dtype) == name) return dtype;
  return 0;
}

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : ",") + std::to_string(extent);
  return "(" + text + ")";
}

int64_t elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

void AttrList::put(std::shared_ptr<Item> item) {
  item->attr.size = static_cast<uint32_t>(sizeof(galley_attr));
  item->attr.revision = 1;
  item->attr.name = item->name.c_str();
  switch (item->attr.type) {
    case GALLEY_ATTR_I64:
      item->attr.data = item->integers.data();
      item->attr.count = static_cast<uint32_t>(item->integers.size());
      break;
    case GALLEY_ATTR_F64:
      item->attr.data = item->numbers.data();
      item->attr.count = static_cast<uint32_t>(item->numbers.size());
      break;
    default: item->attr.data = item->text.c_str(); item->attr.count = static_cast<uint32_t>(item->text.size());
  }
  // A second value of one name replaces the first where it stands: clones that share the old item keep it.
  const auto same = std::find_if(items_.begin(), items_.end(), [&](const auto& old) { return old->name == item->name; });
  if (same != items_.end()) *same = std::move(item);
  else items_.push_back(std::move(item));
}

void AttrList::set(const std::string& name, int64_t value) {
  auto item = std::make_shared<Item>();
  item->name = name;
  item->integers = {value};
  item->attr.type = GALLEY_ATTR_I64;
  put(std::move(item));
}

void AttrList::set(const std::string& name, std::vector<double> values) {
  auto item = std::make_shared<Item>();
  item->name = name;
  item->numbers = std::move(values);
  item->attr.type = GALLEY_ATTR_F64;
  put(std::move(item));
}

void AttrList::set(const std::string& name, std::vector<int64_t> values) {
  auto item = std::make_shared<Item>();
  item->name = name;
  item->integers = std::move(values);
  item->attr.type = GALLEY_ATTR_I64;
  put(std::move(item));
}

void AttrList::set(const std::string& name, double value) {
  auto item = std::make_shared<Item>();
  item->name = name;
  item->numbers = {value};
  item->attr.type = GALLEY_ATTR_F64;
  put(std::move(item));
}

void AttrList::set(const std::string& name, const std::string& value) {
  auto item = std::make_shared<Item>();
  item->name = name;
  item->text = value;
  item->attr.type = GALLEY_ATTR_STRING;
  put(std::move(item));
}

void AttrList::set(const galley_attr& attr) {
  auto item = std::make_shared<Item>();
  item->name = attr.name;
  item->attr.type = attr.type;
  switch (attr.type) {
    case GALLEY_ATTR_I64: {
      const auto* values = static_cast<const int64_t*>(attr.data);
      item->integers.assign(values, values + attr.count);
      break;
    }
    case GALLEY_ATTR_F64: {
      const auto* values = static_cast<const double*>(attr.data);
      item->numbers.assign(values, values + attr.count);
      break;
    }
    default: item->text.assign(static_cast<const char*>(attr.data), attr.count);
  }
  put(std::move(item));
}

Status AttrList::add(const galley_attr* const* attrs, uint32_t n) {
  if (n && !attrs) return plugin_error(std::to_string(n) + " attributes and no table of them");
  for (uint32_t i = 0; i < n; ++i) {
    const std::string which = "attribute " + std::to_string(i + 1);
    if (const std::string wrong = struct_problem(attrs[i]); !wrong.empty()) return plugin_error(which + " " + wrong);
    const galley_attr attr = read_struct(*attrs[i]);
    if (!attr.name || !*attr.name) return plugin_error(which + " has no name");
    if (attr.type < GALLEY_ATTR_I64 || attr.type > GALLEY_ATTR_STRING)
      return plugin_error("attribute '" + std::string(attr.name) + "' has the unknown type " + std::to_string(attr.type));
    for (uint32_t k = 0; k < i; ++k)
      if (galley_same_text(attrs[k]->name, attr.name)) return plugin_error("attribute '" + std::string(attr.name) + "' is there twice");
    if (attr.count && !attr.data) return plugin_error("attribute '" + std::string(attr.name) + "' has no values");
    set(attr);
  }
  return ok();
}

std::string AttrList::key() const {
  std::string out;
  for (const auto& item : items_) {
    out += ";" + item->name + "=" + std::to_string(item->attr.type) + ":";
    out.append(static_cast<const char*>(item->attr.data),
               item->attr.type == GALLEY_ATTR_STRING ? item->attr.count : item->attr.count * sizeof(int64_t));
  }
  return out;
}

galley_operand operand_view(const Operand& operand, const char* name, void* data, uint32_t access) {
  auto out = new_struct<galley_operand>();
  out.name = name;
  out.data = data;
  out.shape = operand.shape.data();
  out.rank = static_cast<uint32_t>(operand.shape.size());
  out.dtype = operand.dtype;
  out.access = access;
  if (operand.inner && !operand.present()) out.flags = GALLEY_OPERAND_NO_MEMORY;
  if (operand.format) {
    out.format = operand.format->name.c_str();
    out.n_components = static_cast<uint32_t>(operand.format->count);
    out.attrs = operand.format->view.data();
    out.n_attrs = static_cast<uint32_t>(operand.format->view.size());
    out.codec = operand.format->codec;
  }
  return out;
}

Instruction launch_of(LaunchNode node, std::vector<Operand> inputs, std::vector<Operand> outputs) {
  Instruction out;
  out.name = node.name;
  node.inputs = {0, inputs.size()};
  node.outputs = {0, outputs.size()};
  out.inputs = std::move(inputs);
  out.outputs = std::move(outputs);
  out.launch()->nodes.front() = std::move(node);
  return out;
}

galley_node_view node_view(const LaunchNode& node, int64_t length, std::span<const galley_operand* const> inputs,
                           std::span<const galley_operand* const> outputs, std::span<const galley_attr* const> attrs) {
  auto out = new_struct<galley_node_view>();
  out.op = node.op ? node.op->name : nullptr;
  out.name = node.name.c_str();
  out.inputs = inputs.data();
  out.outputs = outputs.data();
  out.attrs = attrs.data();
  out.n_inputs = static_cast<uint32_t>(inputs.size());
  out.n_outputs = static_cast<uint32_t>(outputs.size());
  out.n_attrs = static_cast<uint32_t>(attrs.size());
  out.flags = node.flags;
  out.first_row = node.first_row;
  out.length = length;
  out.block = node.block;
  return out;
}

std::string op_text(const Launch& launch) {
  std::string text = launch.op()->name;
  for (size_t k = 1; k < launch.links; ++k) text += std::string(">") + launch.nodes[k].op->name;
  return text;
}

std::vector<int64_t> taken_inputs(const Instruction& i) {
  std::vector<int64_t> out(i.outputs.size(), -1);
  if (!i.launch()) return out;
  const std::vector<LaunchNode>& nodes = i.launch()->nodes;
  const auto taken = [&](size_t at, size_t k) -> int64_t {
    while (true) {
      const galley_op* op = nodes[at].op;
      if (!op || k >= op->n_outputs) return -1;
      const int32_t from = op->outputs[k]->alias;
      if (from < 0 || static_cast<size_t>(from) >= nodes[at].inputs.count) return -1;
      const size_t input = nodes[at].inputs.first + static_cast<size_t>(from);
      const Operand& in = i.inputs[input];
      if (!in.inner) return static_cast<int64_t>(input);
      if (in.present()) return -1;
      const auto made = [&](const Operand& o) { return o.inner == in.inner; };
      do --at;
      while (std::ranges::none_of(i.outputs_of(nodes[at]), made));
      const auto outputs = i.outputs_of(nodes[at]);
      k = static_cast<size_t>(std::ranges::find_if(outputs, made) - outputs.begin());
    }
  };
  for (size_t at = 0; at < nodes.size(); ++at)
    for (size_t k = 0; k < nodes[at].outputs.count; ++k) out[nodes[at].outputs.first + k] = taken(at, k);
  return out;
}

const galley_attr* AttrList::find(const std::string& name) const {
  for (const auto& item : items_)
    if (item->name == name) return &item->attr;
  return nullptr;
}

std::vector<const galley_attr*> AttrList::view() const {
  std::vector<const galley_attr*> attrs;
  attrs.reserve(items_.size());
  for (const auto& item : items_) attrs.push_back(&item->attr);
  return attrs;
}

std::vector<TensorId> Program::written_by_host(SegmentKind kind) const {
  std::vector<TensorId> out;
  if (kind == SegmentKind::Window || infers(kind)) out.push_back(step_image);
  const bool next = kind == SegmentKind::Next;
  if (kind == SegmentKind::Micro || infers(kind))
    for (const Input& input : next ? cached.next : inputs) out.push_back(input.tensor);
  if (kind == SegmentKind::Sample)
    for (const Input& input : cached.prompt) out.push_back(input.tensor);
  if (kind == SegmentKind::Sample || next) out.insert(out.end(), {sample_position, cached.start});
  return out;
}

}  // namespace galley
