// Weights of linear layers in 8 bit (Dettmers, Lewis, Belkada, Zettlemoyer, "LLM.int8(): 8-bit matrix multiplication for transformers at
// scale", 2022, arXiv:2208.07339). `quantize-int8` stores frozen weights in the format "int8-rows" (galley/cpp/int8_rows.hpp); what
// multiplies them reads codes and makes numbers of them. `quantize-llm-int8` stores them so too, and multiplies as LLM.int8() does: the op
// linear_int8 takes the place of linear.
//
// Neither trains a weight that it stores: a step is smaller than what a code stands for. So something else is trained, such as an adapter.
//
// Folders that bitsandbytes has quantized to 8 bit are read as they are, and written with the tensors and the configuration that
// transformers reads.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "bitsandbytes/config.hpp"
#include "galley/cpp/files.hpp"
#include "galley/cpp/glob.hpp"
#include "galley/cpp/int8_rows.hpp"
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;
namespace bitsandbytes = galley::bitsandbytes;

// ---- The format ---------------------------------------------------------------------------------------------------------------------

bool by_column(const Node& node) { return node.i("columns", 0) != 0; }
int64_t scales_of(const Node& node, const galley_operand& matrix) { return by_column(node) ? columns(matrix) : rows(matrix); }

void pack_shape(const Node& node, Shapes& out) {
  const galley_operand& x = node.in(0);
  if (x.dtype != GALLEY_F32) invalid(std::string(node.name()) + ": x has to be F32");
  out.set(0, GALLEY_I8, x.shape, x.rank);
  out.set(1, GALLEY_F32, {scales_of(node, x)});
}
void unpack_shape(const Node& node, Shapes& out) {
  const galley_operand &codes = node.in(0), &scales = node.in(1);
  const std::string name = node.name();
  if (codes.dtype != GALLEY_I8 || scales.dtype != GALLEY_F32) invalid(name + ": codes have to be I8, and scales F32");
  if (count(scales) != scales_of(node, codes)) invalid(name + ": " + shape_text(scales) + " scales for codes " + shape_text(codes));
  out.set(0, node.dtype(GALLEY_F32), codes.shape, codes.rank);
}

/// The index of a number's scale.
int64_t scale_at(const Node& node, const galley_operand& matrix, int64_t i) {
  return by_column(node) ? i % columns(matrix) : i / columns(matrix);
}

/// Codes are compared exactly, so they are made of float numbers, as kernels make them.
void pack_reference(const Node& node) {
  const galley_operand& x = node.in(0);
  std::vector<float> numbers(node.read<double>(0), node.read<double>(0) + count(x));
  std::vector<uint32_t> most(static_cast<size_t>(scales_of(node, x)));
  for (int64_t i = 0; i < count(x); ++i) {
    float& number = numbers[static_cast<size_t>(i)];
    number = int8_rows::in_f16(int8_rows::within(number));
    uint32_t& m = most[static_cast<size_t>(scale_at(node, x, i))];
    m = std::max(m, int8_rows::magnitude_bits(number));
  }
  for (int64_t i = 0; i < count(x); ++i) {
    const float scale = int8_rows::magnitude(most[static_cast<size_t>(scale_at(node, x, i))]);
    node.write<int8_t>(0)[i] = int8_rows::code(numbers[static_cast<size_t>(i)], int8_rows::inverse(scale));
  }
  for (size_t k = 0; k < most.size(); ++k) node.write<double>(1)[k] = int8_rows::magnitude(most[k]);
}
void unpack_reference(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i)
    node.write<double>(0)[i] = node.read<int8_t>(0)[i] * node.read<double>(1)[scale_at(node, node.in(0), i)] / 127;
}

constexpr const char* kColumns = "1: a scale for each column, 0: for each row";

Op& pack() {
  static Op op("int8_rows_pack", "codes = x · 127 / scale, scale = max |x| of each row, of x in F16");
  op.input("x", GALLEY_ROLE_WHOLE)
      .output("codes", GALLEY_ROLE_WHOLE)
      .output("scales", GALLEY_ROLE_WHOLE)
      .integer("columns", 0, kColumns)
      .infer<pack_shape>()
      .reference<pack_reference>()
      .test("rows", {{GALLEY_F32, {37, 671}}})
      .test("columns", {{GALLEY_F32, {671, 37}}}, Attrs().i("columns", 1))
      .test("wide columns", {{GALLEY_F32, {9, 200}, -1e-3, 1e-3}}, Attrs().i("columns", 1))
      .test("one row", {{GALLEY_F32, {1, 1040}, -9e4, 9e4}})
      .test("zeros", {{GALLEY_F32, {3, 8}, 0, 0}})
      .test("small", {{GALLEY_F32, {5, 64}, -1e-7, 1e-7}});
  return op;
}
Op& unpack() {
  static Op op("int8_rows_unpack", "x = code · scale / 127, in dtype");
  op.input("codes", GALLEY_ROLE_WHOLE)
      .input("scales", GALLEY_ROLE_WHOLE)
      .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .integer("columns", 0, kColumns)
      .infer<unpack_shape>()
      .reference<unpack_reference>()
      .test("rows", {{GALLEY_I8, {37, 671}, -127, 127}, {GALLEY_F32, {37}, 0, 1}})
      .test("rows of eights", {{GALLEY_I8, {37, 680}, -127, 127}, {GALLEY_F32, {37}, 0, 1}}, Attrs().s("dtype", "bf16"))
      .test("columns", {{GALLEY_I8, {67, 131}, -127, 127}, {GALLEY_F32, {131}, 0, 1}}, Attrs().i("columns", 1).s("dtype", "f16"))
      .test("columns of eights", {{GALLEY_I8, {67, 136}, -127, 127}, {GALLEY_F32, {136}, 0, 1}}, Attrs().i("columns", 1));
  return op;
}

void components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  bool columns = false;
  for (const galley_attr* option : options) {
    if (!galley_same_text(option->name, "columns")) invalid(std::string("int8-rows has no option '") + option->name + "'");
    columns = *static_cast<const int64_t*>(option->data) != 0;
  }
  if (shape.empty() || (columns && shape.size() != 2)) invalid("int8-rows stores matrices");
  int64_t rows = 1;
  for (size_t k = 0; k + 1 < shape.size(); ++k) rows *= shape[k];
  out.add("", GALLEY_I8, shape, 1);
  out.add(int8_rows::kScaleSuffix, GALLEY_F32, {columns ? shape.back() : rows}, columns ? 0 : shape.back(), "*.SCB");
}

// ---- The strategies -----------------------------------------------------------------------------------------------------------------

/// Whether the product is multiplied by a number, as an adapter's is: linear_int8 cannot.
bool is_multiple(const galley_node_info& node) {
  for (uint32_t i = 0; i < node.n_attrs; ++i)
    if (galley_same_text(node.attrs[i]->name, "alpha") && *static_cast<const double*>(node.attrs[i]->data) != 1) return true;
  return false;
}

bool transposed(const galley_node_info& node) {
  for (uint32_t i = 0; i < node.n_attrs; ++i)
    if (galley_same_text(node.attrs[i]->name, "transposed") && node.attrs[i]->type == GALLEY_ATTR_I64)
      return *static_cast<const int64_t*>(node.attrs[i]->data) != 0;
  return false;
}

/// Which weights of a graph are stored in 8 bit.
struct Found {
  std::optional<bitsandbytes::Config> folder;  ///< what the model's folder says of itself, if it is quantized already
  std::set<std::string> in_folder;             ///< modules that the folder holds in 8 bit
  std::set<std::string> left;                  ///< layers that are not stored in 8 bit
  std::map<galley_tensor, bool> by_column;     ///< the weights that are
  std::set<galley_tensor> computed;            ///< those that linear_int8 multiplies
  bool all = false;                            ///< also those that nobody has frozen
};

/// Finds the weights that are stored in 8 bit: those of the model's linear layers, but for the head, for tables of embeddings, and for what
/// the recipe skips. Of a folder that is quantized already, those that it holds so.
class Weights {
 public:
  explicit Weights(const Options& options) : skip_(options.strings("skip")), skips_(options.given("skip")) {
    rows_.i("columns", 0);
    columns_.i("columns", 1);
  }

  /// What the folder says, and which layers are left in any case. No weights yet.
  Found look(const GraphReader& graph) const {
    Found out;
    out.folder = bitsandbytes::Config::read(graph);
    if (!out.folder) {
      note_left(graph, &out);
      return out;
    }
    if (out.folder->four_bit)
      invalid(out.folder->place + ": the folder is quantized to 4 bit, not to 8", "it is read with use \"quantize-nf4\" {}");
    if (skips_) invalid(out.folder->model + " is quantized already, and says which layers are not", "leave 'skip' out");
    if (!out.folder->has_weights()) return out;
    constexpr const char* layout = "*.weight_format";
    constexpr uint64_t bytes = 16;
    for (const auto& [name, data] : read_contents(out.folder->model, layout, bytes)) {
      if (std::any_of(data.begin(), data.end(), [](char c) { return c != 0; }))
        invalid(out.folder->model + ": tensor '" + name + "' says that codes lie in another order than row by row, which is not read here",
                "save the folder anew with bitsandbytes 0.43 or later");
      out.in_folder.insert(name.substr(0, name.size() - std::strlen(layout) + 1));
    }
    return out;
  }

  bool takes(const GraphReader& graph, const galley_node_info& node, const Found& found) const {
    if (!(node.op_flags & GALLEY_OP_LINEAR) || node.n_inputs < 2) return false;
    const galley_tensor_info w = graph.info(node.inputs[1]);
    if (w.kind != GALLEY_KIND_PARAMETER || w.rank != 2 || w.flags & GALLEY_TENSOR_EMBEDDING) return false;
    const std::string module = module_of(w.name);
    if (!found.in_folder.empty()) return found.in_folder.count(module_of(w.source_name)) != 0;
    if (w.flags & GALLEY_TENSOR_HEAD || bitsandbytes::is_kept(graph, module) || bitsandbytes::is_left(found.left, module)) return false;
    return std::none_of(skip_.begin(), skip_.end(), [&](const std::string& pattern) { return glob_match_suffix(pattern, module); });
  }

  /// Stored are those that are frozen. Where nothing is trained, as in an evaluation, those that a run would not train; all, if there are
  /// no such.
  void claim(const GraphReader& graph, const Claims& claims, const char* strategy) const {
    if (!claims.about(GALLEY_FACET_STORAGE) || !claims.any(GALLEY_SUBJECT_PARAMETER)) return;
    const Found found = find(graph);
    for (const Claim& weight : claims) {
      if (weight.kind != GALLEY_SUBJECT_PARAMETER || *weight.owner) continue;
      const auto at = found.by_column.find(weight.tensor);
      if (at == found.by_column.end()) continue;
      if (weight.trainable && !found.all) refuse_or_leave(graph, weight, strategy, found);
      else weight.weak(0, int8_rows::kName, at->second ? columns_ : rows_);
    }
  }

  /// As transformers saves such a folder, where the model is saved. Its layers hold a scale for each row of a weight: what GPT-2's have is
  /// saved as numbers.
  template <class Threshold>
  void save(ExportGraph& graph, const Threshold& threshold) const {
    if (graph.find("int8_rows.weight_format")) return;  // the other strategy of this plugin has done it
    const Found found = find(graph);
    galley_tensor layout = 0;
    for (const auto& [t, columns] : found.by_column) {
      const galley_tensor_info info = graph.info(t);
      if (columns || !galley_same_text(info.format, int8_rows::kName)) continue;
      if (!layout) layout = graph.make(Graph::described("int8_rows.weight_format", GALLEY_KIND_CONSTANT, GALLEY_U8, {}));  // 0
      graph.export_stored(t);
      graph.export_tensor(module_of(info.name) + ".weight_format", layout);
    }
    if (!layout) return;
    // Weights that were trained beside them, and GPT-2's, are numbers, too.
    std::set<std::string> left = found.left;
    for (const auto& [t, columns] : found.by_column)
      if (const galley_tensor_info info = graph.info(t); columns || !galley_same_text(info.format, int8_rows::kName))
        left.insert(module_of(info.name));
    graph.config(bitsandbytes::kConfigKey, nlohmann::json{{"quant_method", "bitsandbytes"},
                                                          {"load_in_8bit", true},
                                                          {"load_in_4bit", false},
                                                          {"_load_in_8bit", true},
                                                          {"_load_in_4bit", false},
                                                          {"llm_int8_enable_fp32_cpu_offload", false},
                                                          {"llm_int8_has_fp16_weight", false},
                                                          {"llm_int8_threshold", threshold(found)},
                                                          {"llm_int8_skip_modules", left}}
                                               .dump());
  }

  /// Weights in 8 bit that other programs have saved have beside them how their codes lie: row by row.
  static void ignore_layouts(ModelGraph& graph) { graph.ignore("*.weight_format"); }

 private:
  /// What is left in any case, before others are asked for.
  void note_left(const GraphReader& graph, Found* found) const {
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL))
      if (const galley_node_info node = graph.node(n); node.op_flags & GALLEY_OP_LINEAR && node.n_inputs > 1 && !takes(graph, node, *found))
        leave(graph, node, found);
  }

  /// A linear layer of the model that is not stored in 8 bit.
  static void leave(const GraphReader& graph, const galley_node_info& node, Found* found) {
    const galley_tensor_info w = graph.info(node.inputs[1]);
    if (w.kind != GALLEY_KIND_PARAMETER) return;
    const std::vector<std::string> called = bitsandbytes::modules_of(node, w);
    found->left.insert(called.begin(), called.end());
  }

  Found find(const GraphReader& graph) const {
    Found out = look(graph);
    bool frozen = false;
    std::vector<std::string> modules;
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info node = graph.node(n);
      if (node.op_flags & GALLEY_OP_LINEAR && node.n_inputs > 1) modules.push_back(module_of(graph.info(node.inputs[1]).name));
      if (!takes(graph, node, out)) {
        if (node.op_flags & GALLEY_OP_LINEAR && node.n_inputs > 1) leave(graph, node, &out);
        continue;
      }
      out.by_column[node.inputs[1]] = transposed(node);
      frozen = frozen || !(graph.info(node.inputs[1]).flags & GALLEY_TENSOR_TRAINABLE);
      if (galley_same_text(node.op, "linear_int8")) out.computed.insert(node.inputs[1]);
    }
    for (const std::string& pattern : skip_)
      if (std::none_of(modules.begin(), modules.end(), [&](const std::string& module) { return glob_match_suffix(pattern, module); }))
        invalid("'skip': no linear layer is called '" + pattern + "'; " + nearest_names(pattern, modules));
    out.all = !frozen && graph.run().purpose != GALLEY_PURPOSE_TRAIN;
    check_folder(graph, out);
    if (out.by_column.empty()) invalid("no weight is left to store in 8 bit: 'skip' names all linear layers");
    return out;
  }

  /// A folder that is quantized already has no weight as GPT-2 has them.
  static void check_folder(const GraphReader& graph, const Found& found) {
    if (!found.folder) return;
    for (const auto& [weight, columns] : found.by_column)
      if (columns)
        invalid(std::string(graph.run().model) + ": '" + graph.info(weight).source_name +
                    "' is quantized as (outputs, inputs), and the model has (inputs, outputs): bitsandbytes turns layers of GPT-2 around",
                "take the folder that was quantized, and use this strategy on that");
  }

  /// A weight that is trained stays as it is, as long as others are frozen and nothing multiplies it as integers.
  static void refuse_or_leave(const GraphReader& graph, const Claim& weight, const char* strategy, const Found& found) {
    bool frozen = false;
    for (const auto& [other, columns] : found.by_column) frozen = frozen || !(graph.info(other).flags & GALLEY_TENSOR_TRAINABLE);
    if (!frozen)
      invalid("all weights of linear layers are to be trained, and weights in 8 bit cannot be",
              "add use \"lora\" { rank = 16 }, which trains an adapter beside them, or freeze some by use \"freeze\"");
    if (found.computed.count(weight.tensor))
      invalid(std::string("'") + weight.name + "' is to be trained, and " + strategy + " multiplies it in 8 bit",
              "freeze it, or leave it out by skip = { \"" + module_of(weight.name) + "\" }");
  }

  std::vector<std::string> skip_;
  bool skips_;  ///< the recipe says so
  Attrs rows_, columns_;
};

class QuantizeInt8 {
 public:
  static constexpr uint32_t phase = GALLEY_PHASE_REPLACE;
  explicit QuantizeInt8(const Options& options) : weights_(options) {}

  void model(ModelGraph& graph) const { Weights::ignore_layouts(graph); }
  void save(ExportGraph& graph) const {
    // transformers rounds inputs, too, and without a threshold outliers among them would take the others' places.
    weights_.save(graph, [](const Found&) { return 6.0; });
  }
  void claim(const GraphReader& graph, const Claims& claims) const { weights_.claim(graph, claims, "quantize-int8"); }

 private:
  Weights weights_;
};

class QuantizeLlmInt8 {
 public:
  static constexpr uint32_t phase = GALLEY_PHASE_REPLACE;
  explicit QuantizeLlmInt8(const Options& options)
      : weights_(options), given_(options.given("threshold")), threshold_(given_ ? options.number("threshold") : 6) {}

  /// linear_int8 in the place of linear.
  void model(ModelGraph& graph) const {
    const Found found = weights_.look(graph);
    Weights::ignore_layouts(graph);
    std::vector<galley_node> replaced;
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info node = graph.node(n);
      if (galley_same_text(node.op, "linear") && !is_multiple(node) && weights_.takes(graph, node, found)) replaced.push_back(n);
    }
    if (replaced.empty()) invalid("the model has no linear layer whose weight could be stored in 8 bit");
    for (const galley_node n : replaced) {
      const galley_node_info node = graph.node(n);
      Attrs attrs;
      for (uint32_t i = 0; i < node.n_attrs; ++i) attrs.copy(*node.attrs[i]);
      attrs.f("threshold", threshold(found));
      const std::vector<galley_tensor> inputs(node.inputs, node.inputs + node.n_inputs);
      const galley_tensor y = node.outputs[0];
      graph.replace(y, graph.node("linear_int8", (std::string(node.name) + ".int8").c_str(), inputs, attrs)[0]);
    }
  }
  void save(ExportGraph& graph) const {
    weights_.save(graph, [&](const Found& found) { return threshold(found); });
  }
  void claim(const GraphReader& graph, const Claims& claims) const { weights_.claim(graph, claims, "quantize-llm-int8"); }

 private:
  double threshold(const Found& found) const { return found.folder && !given_ ? found.folder->threshold() : threshold_; }

  Weights weights_;
  bool given_;
  double threshold_;
};

const bool registered = add(pack()) && add(unpack()) && add(format<components>(int8_rows::kName, "int8_rows_pack", "int8_rows_unpack")) &&
                        add(strategy<QuantizeInt8>("quantize-int8")) && add(strategy<QuantizeLlmInt8>("quantize-llm-int8"));

}  // namespace

GALLEY_PLUGIN("quantize-int8", "1.0.0");
