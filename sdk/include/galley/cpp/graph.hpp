// The graph's functions as methods, for strategies and gradient rules.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "galley/cpp/node.hpp"

namespace galley::sdk {

/// Reads a graph. Each method throws Failure with the host's text.
class GraphReader {
 public:
  GraphReader(const galley_graph_reader* reader, galley_graph* graph) : reader_(reader), graph_(graph) {}

  galley_tensor_info info(galley_tensor t) const {
    galley_tensor_info out = fresh<galley_tensor_info>();
    check([&](galley_error* e) { return reader_->tensor_get(graph_, t, &out, e); });
    understand(&out);
    return out;
  }
  galley_node_info node(galley_node n) const {
    galley_node_info out = fresh<galley_node_info>();
    check([&](galley_error* e) { return reader_->node_get(graph_, n, &out, e); });
    understand(&out);
    return out;
  }
  /// Returns 0 if there is no such tensor. The gradient of parameter P is "grad.P".
  galley_tensor find(const std::string& name) const {
    galley_tensor out = 0;
    check([&](galley_error* e) { return reader_->tensor_find(graph_, name.c_str(), &out, e); });
    return out;
  }
  galley_tensor next_tensor(galley_tensor t) const { return reader_->tensor_next(graph_, t); }
  /// Iterates over the nodes of what is being built, or of the model: GALLEY_NODES_….
  galley_node next_node(galley_node n, uint32_t of = GALLEY_NODES_BUILT) const { return reader_->node_next(graph_, of, n); }
  /// The run that the graph is made for.
  galley_run_info run() const {
    if (!GALLEY_HAS(reader_, galley_graph_reader, run)) unsupported("this Galley does not describe the run");
    galley_run_info out = fresh<galley_run_info>();
    check([&](galley_error* e) { return reader_->run(graph_, &out, e); });
    understand(&out);
    return out;
  }
  /// A key of the model's config.json as JSON text, which lives as long as the graph; nullptr if there is no such key.
  const char* config_of(const char* key) const {
    if (!GALLEY_HAS(reader_, galley_graph_reader, config_get)) unsupported("this Galley does not show the model's configuration");
    const char* json = nullptr;
    check([&](galley_error* e) { return reader_->config_get(graph_, key, &json, e); });
    return json;
  }
  /// What this strategy has written into a file by `document`; "": nothing.
  std::string document_of(const std::string& file) const {
    if (!GALLEY_HAS(reader_, galley_graph_reader, document_get)) unsupported("this Galley does not show documents");
    const char* text = nullptr;
    check([&](galley_error* e) { return reader_->document_get(graph_, file.c_str(), &text, e); });
    return text ? text : "";
  }

 protected:
  template <class Call>
  static void check(Call&& call) {
    galley_error error = GALLEY_ERROR_INIT;
    const galley_status status = call(&error);
    if (status != GALLEY_OK) throw Failure(status, error.text, error.hint);
  }
  const galley_graph_reader* reader_;
  galley_graph* graph_;
};

/// Changes a graph: what every phase has. Each method throws Failure with the host's text.
class Graph : public GraphReader {
 public:
  Graph(const galley_graph_verbs* verbs, galley_graph* graph) : GraphReader(verbs->reader, graph), verbs_(verbs) {}
  using GraphReader::node;

  /// Describes a tensor for `make`. The description points into `name` and `shape`.
  static galley_tensor_desc described(const std::string& name, uint32_t kind, uint32_t dtype, const std::vector<int64_t>& shape) {
    galley_tensor_desc d = fresh<galley_tensor_desc>();
    d.name = name.c_str();
    d.shape = shape.data();
    d.rank = static_cast<uint32_t>(shape.size());
    d.dtype = dtype;
    d.kind = kind;
    return d;
  }
  galley_tensor make(galley_tensor_desc desc) {
    galley_tensor out = 0;
    if (desc.kind == GALLEY_KIND_STATE && !desc.parameter) desc.parameter = about_;
    check([&](galley_error* e) { return verbs_->tensor_make(graph_, &desc, &out, e); });
    return out;
  }
  /// From now on, a state that names no parameter belongs to this one; 0: to none.
  void about(galley_tensor parameter) { about_ = parameter; }
  /// Makes a state of the shape of `like`, F32, initialized with zeros. `flags`: GALLEY_TENSOR_….
  galley_tensor state(const std::string& name, const galley_tensor_info& like, uint64_t flags = 0) {
    const std::vector<int64_t> shape(like.shape, like.shape + like.rank);
    galley_tensor_desc d = described(name, GALLEY_KIND_STATE, GALLEY_F32, shape);
    d.flags = flags;
    return make(d);
  }
  /// Makes a state, F32, that nodes of forward write (graph.h, "Forward"), of zeros or by `initializer`, an op.
  galley_tensor forward_state(const std::string& name, const std::vector<int64_t>& shape, const char* initializer = nullptr,
                              const Attrs& attrs = {}) {
    return state(name, GALLEY_F32, shape, initializer, {}, attrs, GALLEY_TENSOR_WRITTEN_FORWARD);
  }
  /// Makes a cache of zeros, which lives as long as the process works with the graph and is never saved (graph.h, "Forward").
  galley_tensor cache(const std::string& name, uint32_t dtype, const std::vector<int64_t>& shape) {
    return make(described(name, GALLEY_KIND_CACHE, dtype, shape));
  }
  /// Makes a parameter, F32, that is saved under its name in a file of its own, "adapter/adapter_model.safetensors", or, where `file` is null,
  /// with the model. Without an initializer, an op, it begins as zeros.
  galley_tensor parameter(const std::string& name, const std::vector<int64_t>& shape, const char* file, const char* initializer = nullptr,
                          const Attrs& attrs = {}, uint64_t flags = 0) {
    galley_tensor_desc d = described(name, GALLEY_KIND_PARAMETER, GALLEY_F32, shape);
    d.flags = flags;
    d.file = file;
    d.initializer = initializer;
    d.attrs = attrs.data();
    d.n_attrs = attrs.count();
    return make(d);
  }
  /// Makes a state whose first numbers are the output of `initializer`, an op; null: zeros. `flags`: GALLEY_TENSOR_….
  galley_tensor state(const std::string& name, uint32_t dtype, const std::vector<int64_t>& shape, const char* initializer,
                      const std::vector<galley_tensor>& inputs = {}, const Attrs& attrs = {}, uint64_t flags = 0) {
    galley_tensor_desc d = described(name, GALLEY_KIND_STATE, dtype, shape);
    d.flags = flags;
    d.initializer = initializer;
    d.initializer_inputs = inputs.data();
    d.n_initializer_inputs = static_cast<uint32_t>(inputs.size());
    d.attrs = attrs.data();
    d.n_attrs = attrs.count();
    return make(d);
  }
  /// Makes a state of one element.
  galley_tensor number(const std::string& name, uint32_t dtype, double value) {
    return state(name, dtype, {1}, "fill", {}, Attrs().f("value", value));
  }
  /// Makes a state, F32, that begins as the parameter does and belongs to it.
  galley_tensor copy_of(const std::string& name, galley_tensor parameter) {
    const galley_tensor_info p = info(parameter);
    const galley_tensor before = std::exchange(about_, parameter);
    const galley_tensor out = state(name, GALLEY_F32, {p.shape, p.shape + p.rank}, "copy", {parameter});
    about_ = before;
    return out;
  }

  /// Appends a node and returns its outputs. An entry 0 of `outputs` makes a tensor by the shape rule. Where an entry of `accumulate` is
  /// true, the node adds to that output.
  std::vector<galley_tensor> node(const char* op, const char* name, const std::vector<galley_tensor>& inputs, const Attrs& attrs = {},
                                  std::vector<galley_tensor> outputs = {0}, std::vector<uint8_t> accumulate = {}) {
    galley_node_desc d = fresh<galley_node_desc>();
    d.op = op;
    d.name = name;
    d.inputs = inputs.data();
    d.n_inputs = static_cast<uint32_t>(inputs.size());
    d.attrs = attrs.data();
    d.n_attrs = attrs.count();
    d.n_outputs = static_cast<uint32_t>(outputs.size());
    accumulate.resize(outputs.size());
    d.accumulate = accumulate.data();
    check([&](galley_error* e) { return verbs_->node_make(graph_, &d, outputs.data(), e); });
    return outputs;
  }
  galley_tensor scalar(uint32_t which) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return verbs_->scalar(graph_, which, &out, e); });
    return out;
  }
  galley_tensor option(const char* name) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return verbs_->option(graph_, name, &out, e); });
    return out;
  }

 private:
  const galley_graph_verbs* verbs_;
  galley_tensor about_ = 0;
};

/// The model's forward graph, which a strategy rewrites.
class ModelGraph : public Graph {
 public:
  ModelGraph(const galley_model_verbs* verbs, galley_graph* graph) : Graph(verbs->graph, graph), own_(verbs) {}
  void replace(galley_tensor from, galley_tensor to) {
    check([&](galley_error* e) { return own_->replace(graph_, from, to, e); });
  }
  void set_input(galley_node node, uint32_t input, galley_tensor to) {
    check([&](galley_error* e) { return own_->set_input(graph_, node, input, to, e); });
  }
  void scale_rate(galley_tensor parameter, double factor) {
    check([&](galley_error* e) { return own_->scale_rate(graph_, parameter, factor, e); });
  }
  void ignore(const std::string& pattern) {
    check([&](galley_error* e) { return own_->ignore(graph_, pattern.c_str(), e); });
  }
  void document(const std::string& file, const std::string& text) {
    check([&](galley_error* e) { return own_->document(graph_, file.c_str(), text.c_str(), e); });
  }
  /// An input of the model, or a tensor that the run's data brings. There is data where the run's purpose is to train, to evaluate or to
  /// compute gradients.
  galley_tensor input(const std::string& name) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return own_->input(graph_, name.c_str(), &out, e); });
    return out;
  }
  /// Takes away a node with GALLEY_OP_LOSS, in whose place the strategy puts a loss of its own.
  void take_loss(galley_node node) {
    check([&](galley_error* e) { return own_->take_loss(graph_, node, e); });
  }
  /// Divides a parameter among the processes of an axis, by rows (dimension 0) or columns (1): the tensor is this process's part.
  void divide(galley_tensor parameter, const char* axis, uint32_t dimension) {
    check([&](galley_error* e) { return own_->divide(graph_, parameter, axis, dimension, e); });
  }

 private:
  const galley_model_verbs* own_;
};

/// What parameters and states begin as.
class LoadGraph : public Graph {
 public:
  LoadGraph(const galley_load_verbs* verbs, galley_graph* graph) : Graph(verbs->graph, graph), own_(verbs) {}
  /// Names a tensor of the model's own files, which is read as `dtype`.
  galley_tensor file(const std::string& name, uint32_t dtype, const std::vector<int64_t>& shape) {
    const std::string own = "file." + name;
    galley_tensor_desc d = described(own, GALLEY_KIND_FILE, dtype, shape);
    d.source_name = name.c_str();
    return make(d);
  }
  /// The parameter or state begins as `value`, or a component of it does.
  void begin_as(galley_tensor tensor, galley_tensor value, uint32_t component = GALLEY_BEGIN_NUMBERS) {
    check([&](galley_error* e) { return own_->begin_as(graph_, tensor, component, value, e); });
  }
  /// What is left of `value` in the format in which the parameter is stored.
  galley_tensor pack_and_unpack(galley_tensor parameter, galley_tensor value) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return own_->pack_and_unpack(graph_, parameter, value, &out, e); });
    return out;
  }
  void ignore(const std::string& pattern) {
    check([&](galley_error* e) { return own_->ignore(graph_, pattern.c_str(), e); });
  }

 private:
  const galley_load_verbs* own_;
};

/// What is saved.
class ExportGraph : public Graph {
 public:
  ExportGraph(const galley_export_verbs* verbs, galley_graph* graph) : Graph(verbs->graph, graph), own_(verbs) {}
  void document(const std::string& file, const std::string& text) {
    check([&](galley_error* e) { return own_->document(graph_, file.c_str(), text.c_str(), e); });
  }
  void export_as(galley_tensor parameter, galley_tensor value) {
    check([&](galley_error* e) { return own_->export_as(graph_, parameter, value, e); });
  }
  void export_stored(galley_tensor parameter) {
    check([&](galley_error* e) { return own_->export_stored(graph_, parameter, e); });
  }
  /// Component `index` of the format in which a parameter is stored, for nodes to read.
  galley_tensor component(galley_tensor parameter, uint32_t index) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return own_->component(graph_, parameter, index, &out, e); });
    return out;
  }
  void export_tensor(const std::string& name, galley_tensor value) {
    check([&](galley_error* e) { return own_->export_tensor(graph_, name.c_str(), value, e); });
  }
  void export_model(uint32_t what) {
    check([&](galley_error* e) { return own_->export_model(graph_, what, e); });
  }
  void config(const std::string& key, const std::string& json) {
    check([&](galley_error* e) { return own_->config_set(graph_, key.c_str(), json.c_str(), e); });
  }

 private:
  const galley_export_verbs* own_;
};

/// The update, and what is evaluated in the place of parameters.
class UpdateGraph : public Graph {
 public:
  UpdateGraph(const galley_update_verbs* verbs, galley_graph* graph) : Graph(verbs->graph, graph), own_(verbs) {}
  /// Returns the option `name` as the learning rate of `parameter`.
  galley_tensor rate(const char* name, galley_tensor parameter) {
    galley_tensor out = 0;
    check([&](galley_error* e) { return own_->rate(graph_, name, parameter, &out, e); });
    return out;
  }
  void scale_rate(galley_tensor parameter, double factor) {
    check([&](galley_error* e) { return own_->scale_rate(graph_, parameter, factor, e); });
  }
  void report(galley_tensor tensor, const std::string& name) {
    check([&](galley_error* e) { return own_->report(graph_, tensor, name.c_str(), e); });
  }
  void eval_as(galley_tensor parameter, galley_tensor value) {
    check([&](galley_error* e) { return own_->eval_as(graph_, parameter, value, e); });
  }
  void stop_if(galley_tensor flag, const std::string& cause, const std::string& hint = {}) {
    check([&](galley_error* e) { return own_->stop_if(graph_, flag, cause.c_str(), hint.c_str(), e); });
  }
  void end_if(galley_tensor flag, const std::string& reason) {
    check([&](galley_error* e) { return own_->end_if(graph_, flag, reason.c_str(), e); });
  }

 private:
  const galley_update_verbs* own_;
};

/// The arguments of a gradient rule; see galley_gradient_call.
struct Backward {
  Graph graph;
  galley_node_info node;
  const galley_tensor* d_outputs;
  const uint8_t* need;
  galley_tensor* d_inputs;
  const uint8_t* accumulate;
  bool needs(uint32_t input) const { return input < node.n_inputs && node.inputs[input] && need[input]; }
  /// Whether a node that writes d_inputs[input] has to add to it.
  bool adds(uint32_t input) const { return accumulate[input] != 0; }
  const galley_attr* attr(const char* name) const {
    for (uint32_t k = 0; k < node.n_attrs; ++k)
      if (galley_same_text(node.attrs[k]->name, name)) return node.attrs[k];
    return nullptr;
  }
  /// Returns all attributes of the forward node, for a backward node with the same attributes.
  Attrs attrs() const {
    Attrs out;
    for (uint32_t k = 0; k < node.n_attrs; ++k) out.copy(*node.attrs[k]);
    return out;
  }
};

}  // namespace galley::sdk
