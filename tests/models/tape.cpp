#include "tests/models/tape.hpp"

#include <cstdio>
#include <stdexcept>

#include "galley/cpp/node.hpp"

namespace galley::test {
namespace {

galley_status fail(galley_error* error, const std::string& text) {
  error->code = GALLEY_INVALID;
  std::snprintf(error->text, sizeof error->text, "%s", text.c_str());
  return GALLEY_INVALID;
}

}  // namespace

galley_tensor Tape::tensor(Tensor t) {
  tensors_.push_back({std::move(t), "t" + std::to_string(tensors_.size() + 1), 0});
  return tensors_.size();
}

const galley_attr* Tape::keep(const galley_attr& a) {
  const size_t element = a.type == GALLEY_ATTR_STRING ? 1 : 8;
  Kept& k = attrs_.emplace_back();
  k.name = a.name;
  k.bytes.assign(static_cast<const char*>(a.data), a.count * element);
  k.attr = {sizeof(galley_attr), 1, k.name.c_str(), k.bytes.c_str(), a.type, a.count, 0};
  return &k.attr;
}

galley_node Tape::forward(const Problem& p, std::vector<galley_tensor>* inputs, std::vector<galley_tensor>* outputs) {
  Node n;
  n.op = p.op;
  n.name = p.name;
  n.flags = p.flags;
  n.length = p.length;
  for (uint32_t k = 0; k < p.n_attrs; ++k) n.attrs.push_back(keep(*p.attrs[k]));
  for (const auto& t : p.inputs) n.inputs.push_back(t ? tensor(*t) : 0);
  for (const auto& t : p.outputs) {
    n.outputs.push_back(t ? tensor(*t) : 0);
    if (t) tensors_.back().producer = nodes_.size() + 1;
  }
  *inputs = n.inputs;
  *outputs = n.outputs;
  nodes_.push_back(std::move(n));
  return nodes_.size();
}

Problem Tape::problem(const Node& n) const {
  Problem p;
  p.op = n.op;
  p.name = n.name;
  p.attrs = n.attrs.data();
  p.n_attrs = static_cast<uint32_t>(n.attrs.size());
  p.flags = n.flags;
  p.length = n.length;
  for (const galley_tensor t : n.inputs) p.inputs.push_back(t ? std::optional(tensors_.at(t - 1).tensor) : std::nullopt);
  for (const galley_tensor t : n.outputs) p.outputs.push_back(t ? std::optional(tensors_.at(t - 1).tensor) : std::nullopt);
  return p;
}

void Tape::evaluate() {
  for (size_t k = 1; k < nodes_.size(); ++k) {
    const Node& n = nodes_[k];
    Problem p = problem(n);
    for (size_t i = 0; i < p.inputs.size(); ++i)
      if (p.inputs[i] && static_cast<int64_t>(p.inputs[i]->values.size()) != p.inputs[i]->count())
        throw std::runtime_error(n.name + ": input " + std::to_string(i) + " of " + n.op->name + " is read before it is made");
    run_reference(p);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (!n.outputs[i]) continue;
      Tensor& to = value(n.outputs[i]);
      if (n.accumulate[i]) {
        if (!(n.op->outputs[i]->flags & GALLEY_OPERAND_ACCUMULATES))
          throw std::runtime_error(n.name + ": " + n.op->name + " cannot add into its output " + std::to_string(i));
        for (size_t e = 0; e < to.values.size(); ++e) to.values[e] += p.outputs[i]->values[e];
      } else {
        to.values = p.outputs[i]->values;
      }
    }
  }
}

// ---- Verbs ------------------------------------------------------------------------------------------------------------------------

galley_status Tape::tensor_get(galley_graph* g, galley_tensor t, galley_tensor_info* out, galley_error* error) {
  auto& tape = *reinterpret_cast<Tape*>(g);
  if (!t || t > tape.tensors_.size()) return fail(error, "no such tensor");
  const Entry& e = tape.tensors_[t - 1];
  *out = {sizeof(galley_tensor_info),
          1,
          e.name.c_str(),
          e.tensor.shape.data(),
          static_cast<uint32_t>(e.tensor.shape.size()),
          e.tensor.dtype,
          GALLEY_KIND_TRANSIENT,
          0,
          0,
          e.producer,
          0,
          -1,
          "",
          ""};
  return GALLEY_OK;
}

galley_status Tape::node_get(galley_graph* g, galley_node id, galley_node_info* out, galley_error* error) {
  auto& tape = *reinterpret_cast<Tape*>(g);
  if (!id || id > tape.nodes_.size()) return fail(error, "no such node");
  const Node& n = tape.nodes_[id - 1];
  *out = {sizeof(galley_node_info),
          1,
          n.op->name,
          n.name.c_str(),
          n.inputs.data(),
          n.outputs.data(),
          n.attrs.data(),
          static_cast<uint32_t>(n.inputs.size()),
          static_cast<uint32_t>(n.outputs.size()),
          static_cast<uint32_t>(n.attrs.size()),
          0,
          -1,
          n.op->flags};
  return GALLEY_OK;
}

galley_status Tape::node_make(galley_graph* g, const galley_node_desc* d, galley_tensor* outputs, galley_error* error) {
  auto& tape = *reinterpret_cast<Tape*>(g);
  Node n;
  n.op = tape.plugin_.op(d->op);
  if (!n.op) return fail(error, std::string("no op '") + d->op + "'");
  n.name = d->name ? d->name : std::string(d->op) + "." + std::to_string(tape.nodes_.size());
  n.flags = tape.nodes_.front().flags;
  n.length = tape.nodes_.front().length;
  n.accumulate.assign(d->accumulate, d->accumulate + d->n_outputs);
  n.inputs.assign(d->inputs, d->inputs + d->n_inputs);
  n.outputs.assign(outputs, outputs + d->n_outputs);
  n.outputs.resize(n.op->n_outputs, 0);
  for (uint32_t k = 0; k < d->n_attrs; ++k) n.attrs.push_back(tape.keep(*d->attrs[k]));
  try {
    Problem p = tape.problem(n);
    p.infer();
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (!p.outputs[i]) {
        if (n.outputs[i]) return fail(error, n.name + ": output " + std::to_string(i) + " is not there, but is given");
        continue;
      }
      if (!n.outputs[i]) {
        n.outputs[i] = tape.tensor(*p.outputs[i]);
        tape.tensors_.back().producer = tape.nodes_.size() + 1;
      } else if (tape.value(n.outputs[i]).shape != p.outputs[i]->shape) {
        return fail(error, n.name + ": output " + std::to_string(i) + " has another shape than what it is to be written to");
      }
    }
  } catch (const std::exception& e) {
    return fail(error, e.what());
  }
  for (uint32_t k = 0; k < d->n_outputs; ++k) outputs[k] = n.outputs[k];
  tape.nodes_.push_back(std::move(n));
  return GALLEY_OK;
}

galley_status Tape::scalar(galley_graph* g, uint32_t which, galley_tensor* out, galley_error* error) {
  auto& tape = *reinterpret_cast<Tape*>(g);
  const auto found = tape.scalars_.find(which);
  if (found == tape.scalars_.end()) return fail(error, "no step scalar " + std::to_string(which));
  *out = found->second;
  return GALLEY_OK;
}

const galley_graph_verbs* Tape::verbs() {
  static const galley_graph_reader reader = [] {
    auto r = sdk::fresh<galley_graph_reader>();
    r.tensor_get = tensor_get;
    r.node_get = node_get;
    r.tensor_find = [](galley_graph*, const char*, galley_tensor* out, galley_error*) -> galley_status {
      *out = 0;
      return GALLEY_OK;
    };
    r.node_next = [](galley_graph*, uint32_t, galley_node) -> galley_node { return 0; };
    r.tensor_next = [](galley_graph*, galley_tensor) -> galley_tensor { return 0; };
    return r;
  }();
  static const galley_graph_verbs table = [] {
    auto v = sdk::fresh<galley_graph_verbs>();
    v.reader = &reader;
    v.node_make = node_make;
    v.scalar = scalar;
    v.tensor_make = [](galley_graph*, const galley_tensor_desc*, galley_tensor*, galley_error* e) {
      return fail(e, "a gradient rule makes no tensors");
    };
    v.replace = [](galley_graph*, galley_tensor, galley_tensor, galley_error* e) { return fail(e, "a gradient rule replaces nothing"); };
    v.option = [](galley_graph*, const char*, galley_tensor*, galley_error* e) { return fail(e, "an op has no options"); };
    v.document = [](galley_graph*, const char*, const char*, galley_error* e) { return fail(e, "a gradient rule writes no documents"); };
    v.export_as = [](galley_graph*, galley_tensor, galley_tensor, galley_error* e) { return fail(e, "a gradient rule exports nothing"); };
    v.export_model = [](galley_graph*, uint32_t, galley_error* e) { return fail(e, "a gradient rule exports nothing"); };
    return v;
  }();
  return &table;
}

}  // namespace galley::test
