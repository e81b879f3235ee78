// Frozen weights in 4 bit (Dettmers, Pagnoni, Holtzman, Zettlemoyer, "QLoRA: Efficient finetuning of quantized LLMs", NeurIPS 2023,
// arXiv:2305.14314): claims that the weights of linear layers that are not trained are stored in the format "four-bit"
// (galley/cpp/four_bit.hpp). What trains beside them, an adapter or parameters that `freeze` has left, is other strategies' business.
//
// Products read the codes themselves (models/ops/linear); the format has ops of its own for whatever else reads numbers, and for loading,
// where a weight is packed as soon as it is there.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "folder.hpp"
#include "four_bit_codes.hpp"
#include "galley/cpp/glob.hpp"
#include "galley/cpp/int8_rows.hpp"
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;
namespace four_bit = galley::four_bit;
namespace four_bit_folder = galley::four_bit_folder;
using four_bit_folder::Folder;

// ---- The format ---------------------------------------------------------------------------------------------------------------------

four_bit::Options options_of(const Node& node) { return {node.view()->attrs, node.view()->n_attrs}; }
int64_t bytes_of(int64_t numbers) { return four_bit::divided(numbers, 2); }

void pack_shape(const Node& node, Shapes& out) {
  if (node.in(0).dtype != GALLEY_F32) invalid(std::string(node.name()) + ": x has to be F32");
  const four_bit::Options options = options_of(node);
  const int64_t n = count(node.in(0));
  out.set(0, GALLEY_U8, {bytes_of(n), 1});
  out.set(1, options.doubled ? GALLEY_U8 : GALLEY_F32, {options.blocks(n)});
  if (options.doubled) {
    out.set(2, GALLEY_F32, {options.nested(n)});
    out.set(3, GALLEY_F32, {1});
  } else {
    out.absent(2);
    out.absent(3);
  }
}

/// The shape does not follow from the codes: it is that of the tensor that is there; without one, as many numbers as there are codes.
void unpack_shape(const Node& node, Shapes& out) {
  const std::string name = node.name();
  const four_bit::Options options = options_of(node);
  const galley_operand &codes = node.in(0), &absmax = node.in(1);
  if (codes.dtype != GALLEY_U8 || absmax.dtype != (options.doubled ? GALLEY_U8 : GALLEY_F32))
    invalid(name + ": codes have to be U8, absmax F32 or with double quantization U8");
  const int64_t n = node.has_out(0) ? count(node.out(0)) : 2 * count(codes);
  if (count(codes) != bytes_of(n) || count(absmax) != options.blocks(n))
    invalid(name + ": codes " + shape_text(codes) + " and absmax " + shape_text(absmax) + " for " + std::to_string(n) +
            " numbers in blocks of " + std::to_string(options.block));
  if (options.doubled != (node.has(2) && node.has(3)) || node.has(2) != node.has(3))
    invalid(name + ": nested absmax and offset belong to double quantization");
  if (options.doubled && (node.in(2).dtype != GALLEY_F32 || node.in(3).dtype != GALLEY_F32 || count(node.in(2)) != options.nested(n) ||
                          count(node.in(3)) != 1))
    invalid(name + ": nested absmax " + shape_text(node.in(2)) + " and offset " + shape_text(node.in(3)) + " for absmax " +
            shape_text(absmax));
  const uint32_t dtype = node.dtype(GALLEY_F32);
  if (node.has_out(0)) out.set(0, dtype, node.out(0).shape, node.out(0).rank);
  else out.set(0, dtype, {n});
}

/// Codes are compared exactly, so they are made of float numbers, as kernels make them.
void pack_reference(const Node& node) {
  const four_bit::Options options = options_of(node);
  const int64_t n = count(node.in(0)), blocks = options.blocks(n);
  const std::vector<float> x(node.read<double>(0), node.read<double>(0) + n);
  std::vector<float> absmax(static_cast<size_t>(blocks));
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t at = b * options.block;
    absmax[static_cast<size_t>(b)] =
        four_bit::encode(x.data() + at, std::min(options.block, n - at), options.block, options.type, node.write<uint8_t>(0) + at / 2);
  }
  if (!options.doubled) {
    std::copy(absmax.begin(), absmax.end(), node.write<double>(1));
    return;
  }
  const float offset = four_bit::offset_of(absmax.data(), blocks);
  *node.write<double>(3) = offset;
  for (int64_t at = 0; at < blocks; at += four_bit::kNested)
    node.write<double>(2)[at / four_bit::kNested] =
        four_bit::encode_nested(absmax.data() + at, std::min(four_bit::kNested, blocks - at), offset, node.write<uint8_t>(1) + at);
}
void unpack_reference(const Node& node) {
  const four_bit::Options options = options_of(node);
  const uint8_t* const codes = node.read<uint8_t>(0);
  for (int64_t i = 0; i < count(node.out(0)); ++i) {
    const int64_t block = i / options.block;
    const double absmax = options.doubled ? static_cast<double>(dynamic8::value(node.read<uint8_t>(1)[block], true)) *
                                                    node.read<double>(2)[block / four_bit::kNested] +
                                                *node.read<double>(3)
                                          : node.read<double>(1)[block];
    const int code = i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
    node.write<double>(0)[i] = static_cast<double>(four_bit::value(code, options.type)) * absmax;
  }
}

Op& with_options(Op& op) {
  return op.string("type", "nf4", "nf4 or fp4: the code book")
      .integer("block", 64, "numbers that share an absmax: 32, 64, 128, … or 4096")
      .integer("double", 0, "1: absmax in 8 bit, of blocks of 256");
}

Op& pack() {
  static Op op("four_bit_pack", "codes of 4 bits of x / absmax, absmax = max |x| of each block");
  with_options(op.input("x", GALLEY_ROLE_WHOLE)
                   .output("codes", GALLEY_ROLE_WHOLE)
                   .output("absmax", GALLEY_ROLE_WHOLE)
                   .output("nested_absmax", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL)
                   .output("nested_offset", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL))
      .infer<pack_shape>()
      .reference<pack_reference>()
      .test("nf4", {{GALLEY_F32, {37, 671}}})
      .test("nf4 double", {{GALLEY_F32, {141, 671}}}, Attrs().i("double", 1))
      .test("fp4", {{GALLEY_F32, {33, 52}}}, Attrs().s("type", "fp4"))
      .test("fp4 double, long blocks", {{GALLEY_F32, {515, 79}}}, Attrs().s("type", "fp4").i("block", 256).i("double", 1))
      .test("short blocks", {{GALLEY_F32, {5, 32}}}, Attrs().i("block", 32))
      .test("one block", {{GALLEY_F32, {64}}}, Attrs().i("double", 1))
      .test("less", {{GALLEY_F32, {3}}}, Attrs().i("double", 1));
  return op;
}
Op& unpack() {
  static Op op("four_bit_unpack", "x = entry of the code book * absmax");
  with_options(op.input("codes", GALLEY_ROLE_WHOLE)
                   .input("absmax", GALLEY_ROLE_WHOLE)
                   .input("nested_absmax", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL)
                   .input("nested_offset", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL)
                   .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE))
      .infer<unpack_shape>()
      .reference<unpack_reference>()
      .test("nf4", {{GALLEY_U8, {12413, 1}, 0, 255}, {GALLEY_F32, {388}, 0, 1}, {0, {}}, {0, {}}})
      .test("fp4", {{GALLEY_U8, {858, 1}, 0, 255}, {GALLEY_F32, {27}, 0, 1}, {0, {}}, {0, {}}}, Attrs().s("type", "fp4"))
      .test("double", {{GALLEY_U8, {9000, 1}, 0, 255}, {GALLEY_U8, {282}, 0, 255}, {GALLEY_F32, {2}, 0, .1}, {GALLEY_F32, {1}, 1, 2}},
            Attrs().i("double", 1))
      .test("bf16", {{GALLEY_U8, {12413, 1}, 0, 255}, {GALLEY_F32, {388}, 0, 1}, {0, {}}, {0, {}}}, Attrs().s("dtype", "bf16"))
      .test("f16, long blocks", {{GALLEY_U8, {1001, 1}, 0, 255}, {GALLEY_F32, {4}, 0, 1}, {0, {}}, {0, {}}},
            Attrs().s("dtype", "f16").i("block", 512))
      .test("few", {{GALLEY_U8, {1, 1}, 0, 255}, {GALLEY_F32, {1}, 0, 1}, {0, {}}, {0, {}}});
  return op;
}

void components(const std::vector<int64_t>& shape, const FormatOptions& given, Components& out) {
  const four_bit::Options options(given.data(), static_cast<uint32_t>(given.size()));
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  out.add("", GALLEY_U8, {bytes_of(n), 1}, 2);
  out.add(".absmax", options.doubled ? GALLEY_U8 : GALLEY_F32, {options.blocks(n)}, options.block);
  if (!options.doubled) return;
  out.add(".nested_absmax", GALLEY_F32, {options.nested(n)}, options.block * four_bit::kNested);
  out.add(".nested_offset", GALLEY_F32, {1}, 0, "");
}

bool is_transposed(const galley_node_info& node) {
  for (uint32_t i = 0; i < node.n_attrs; ++i)
    if (galley_same_text(node.attrs[i]->name, "transposed") && node.attrs[i]->type == GALLEY_ATTR_I64)
      return *static_cast<const int64_t*>(node.attrs[i]->data) != 0;
  return false;
}

// ---- The strategy -------------------------------------------------------------------------------------------------------------------

class QuantizeNf4 {
 public:
  /// What is saved is made after adapters, which say whether the model is.
  static constexpr uint32_t phase = GALLEY_PHASE_READ;

  explicit QuantizeNf4(const Options& options)
      : skips_head_(!options.given("skip")),
        saves_(options.boolean("save")),
        how_{options.string("type", "nf4") == "fp4" ? four_bit::kFp4 : four_bit::kNf4, options.integer("block", 64),
             options.boolean("double", false)},
        skip_(options.strings("skip")) {
    for (const char* name : {"type", "block", "double", "skip"})
      if (options.given(name)) given_.insert(name);
    const Attrs format = how_.attrs();
    const four_bit::Options checked(format.data(), format.count());
  }

  void claim(const GraphReader& graph, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_STORAGE) || !claims.any(GALLEY_SUBJECT_PARAMETER)) return;
    const Chosen chosen = choose(graph, Folder::read(graph));
    const Attrs format = chosen.how.attrs();
    for (const Claim& weight : claims)
      if ((!weight.trainable || chosen.all) && !*weight.owner && chosen.weights.count(weight.tensor))
        weight.weak(0, four_bit::kName, format);
  }

  /// Of a folder that is quantized already: components are read as they lie; the offset stands in a text.
  void load(LoadGraph& graph) const {
    if (std::optional<Folder> folder = Folder::read(graph)) begin_as_read(graph, choose(graph, std::move(folder)));
  }
  void save(ExportGraph& graph) const { save_stored(graph, choose(graph, Folder::read(graph))); }

 private:
  /// How weights are stored: as the options say, or as a folder that is quantized already does.
  struct How {
    four_bit::Type type;
    int64_t block;
    bool doubled;
    Attrs attrs() const { return Attrs().s("type", type == four_bit::kFp4 ? "fp4" : "nf4").i("block", block).i("double", doubled); }
  };
  /// Which weights of a graph are.
  struct Chosen {
    How how;
    std::optional<Folder> folder;
    std::set<galley_tensor> weights;
    std::set<galley_tensor> transposed;  // of these, those that lie as (in, out)
    std::set<std::string> left;          // modules whose weights are saved as numbers
    bool all = false;                    // also those that nobody has frozen
  };

  /// A folder that is quantized already says how.
  How follow(const Folder& folder) const {
    const auto clashes = [&](const char* option, bool differs, const std::string& is) {
      if (given_.count(option) && differs)
        invalid(folder.path() + " is quantized with " + option + " = " + is, "leave '" + std::string(option) + "' out");
    };
    clashes("type", how_.type != folder.type(), folder.type() == four_bit::kFp4 ? "\"fp4\"" : "\"nf4\"");
    clashes("block", how_.block != folder.block(), std::to_string(folder.block()));
    clashes("double", how_.doubled != folder.doubled(), folder.doubled() ? "true" : "false");
    if (given_.count("skip")) invalid(folder.path() + " is quantized already, and says which layers are not", "leave 'skip' out");
    return {folder.type(), folder.block(), folder.doubled()};
  }

  /// The weights of linear layers, but for those that are an embedding's table, too, and those that are skipped; of a folder that is
  /// quantized already, those that it holds in 4 bit.
  Chosen choose(const GraphReader& graph, std::optional<Folder> read_folder) const {
    Chosen out = {how_, std::move(read_folder), {}, {}, {}};
    const std::optional<Folder>& folder = out.folder;
    if (folder) out.how = follow(*folder);
    std::vector<std::string> modules;
    std::vector<bool> used(skip_.size());
    std::set<std::string> read;
    bool frozen = false;
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info node = graph.node(n);
      if (!(node.op_flags & GALLEY_OP_LINEAR) || node.n_inputs < 2) continue;
      const galley_tensor_info w = graph.info(node.inputs[1]);
      if (w.kind != GALLEY_KIND_PARAMETER) continue;
      bool skipped = w.flags & GALLEY_TENSOR_EMBEDDING;
      if (!skipped) {
        modules.push_back(module_of(w.name));
        skipped = (skips_head_ && w.flags & GALLEY_TENSOR_HEAD) || galley::bitsandbytes::is_kept(graph, modules.back());
        for (size_t i = 0; i < skip_.size(); ++i)
          if (glob_match_suffix(skip_[i], modules.back())) skipped = used[i] = true;
      }
      if (folder)
        skipped = !folder->find(w.source_name) || (!folder->has_weights() && galley::bitsandbytes::is_kept(graph, module_of(w.name)));
      const std::vector<std::string> called = galley::bitsandbytes::modules_of(node, w);
      if (skipped) {
        out.left.insert(called.begin(), called.end());
        continue;
      }
      if (folder) check_read(node, w, *folder);
      read.insert(w.source_name);
      out.weights.insert(node.inputs[1]);
      if (is_transposed(node)) {
        out.transposed.insert(node.inputs[1]);
        out.left.insert(called.begin(), called.end());
      }
    }
    if (!folder)
      std::erase_if(out.weights, [&](galley_tensor t) {
        const std::string module = module_of(graph.info(t).name);
        const bool left = galley::bitsandbytes::is_left(out.left, module) && !out.transposed.count(t);
        if (left) out.left.insert(module);
        return left;
      });
    for (const galley_tensor t : out.weights) frozen = frozen || !(graph.info(t).flags & GALLEY_TENSOR_TRAINABLE);
    if (folder) folder->check_known(read);
    for (size_t i = 0; i < skip_.size(); ++i)
      if (!used[i]) invalid("'skip': no linear layer is called '" + skip_[i] + "'; " + nearest_names(skip_[i], modules));
    if (out.weights.empty())
      invalid(modules.empty() ? "the model has no linear layer whose weight could be stored in 4 bit"
                              : "no weight is left to store in 4 bit: 'skip' names all linear layers");
    // What is only evaluated, sampled from or exported trains nothing: there, all are stored so.
    out.all = !frozen && graph.run().purpose != GALLEY_PURPOSE_TRAIN;
    if (!frozen && !out.all)
      invalid("all linear layers are trained, and a weight in 4 bit cannot be: a step is smaller than what its codes can tell apart",
              "train an adapter beside it, use \"lora\" { rank = 16 }, or use \"freeze\" for the layers to store in 4 bit");
    return out;
  }

  static void check_read(const galley_node_info& node, const galley_tensor_info& w, const Folder& folder) {
    if (is_transposed(node))
      invalid(folder.path() + ": '" + w.source_name +
                  "' is quantized as (outputs, inputs), and the model has (inputs, outputs): bitsandbytes turns layers of GPT-2 around, so "
                  "that its blocks are others than those of the weight",
              "take the folder that was quantized, and use \"quantize-nf4\" {} on that");
    const std::vector<int64_t> shape(w.shape, w.shape + w.rank);
    const four_bit_folder::QuantState& state = *folder.find(w.source_name);
    if (folder.has_weights() && state.shape != shape)
      invalid(folder.path() + ": '" + std::string(w.source_name) + "' is quantized as " + shape_text(state.shape) + "; the model has " +
                  shape_text(shape),
              "the file belongs to another configuration");
  }

  template <class Do>
  static void each_stored(Graph& graph, const Chosen& chosen, const Do& with) {
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      const galley_tensor_info info = graph.info(t);
      if (chosen.weights.count(t) && galley_same_text(info.format, four_bit::kName)) with(t, info);
    }
  }

  static void begin_as_read(LoadGraph& graph, const Chosen& chosen) {
    const bool doubled = chosen.how.doubled;
    const Attrs format = chosen.how.attrs();
    const auto file = [&](const std::string& name, uint32_t dtype, std::vector<int64_t> shape) {
      const std::string called = "packed " + name;
      galley_tensor_desc d = Graph::described(called, GALLEY_KIND_FILE, dtype, shape);
      d.source_name = name.c_str();
      return graph.make(d);
    };
    each_stored(graph, chosen, [&](galley_tensor t, const galley_tensor_info& info) {
      const std::string name = info.source_name;
      const four_bit::Options options(format.data(), format.count());
      int64_t n = 1;
      for (uint32_t i = 0; i < info.rank; ++i) n *= info.shape[i];
      graph.begin_as(t, file(name, GALLEY_U8, {bytes_of(n), 1}), 0);
      graph.begin_as(t, file(name + ".absmax", doubled ? GALLEY_U8 : GALLEY_F32, {options.blocks(n)}), 1);
      if (!doubled) return;
      graph.begin_as(t, file(name + ".nested_absmax", GALLEY_F32, {options.nested(n)}), 2);
      const Attrs offset = Attrs().numbers("values", {chosen.folder->find(name)->offset});
      graph.begin_as(t, graph.node("four_bit_table", (name + ".offset").c_str(), {}, offset)[0], 3);
    });
    for (const char* pattern : {"*.quant_state.bitsandbytes__*", "*.weight.quant_map", "*.weight.nested_quant_map"}) graph.ignore(pattern);
  }

  /// As transformers saves such a folder, where the model is saved.
  void save_stored(ExportGraph& graph, const Chosen& chosen) const {
    const auto& [type, block, doubled] = chosen.how;
    if (saves_) graph.export_model(GALLEY_EXPORT_BOTH);
    // A folder of bitsandbytes has one kind of codes. Beside weights in 8 bit, those in 4 are saved as numbers.
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t))
      if (galley_same_text(graph.info(t).format, int8_rows::kName)) return;
    galley_tensor book = 0, nested = 0;
    const auto table = [&](const char* name, const std::vector<float>& values) {
      return graph.node("four_bit_table", name, {}, Attrs().numbers("values", {values.begin(), values.end()}))[0];
    };
    each_stored(graph, chosen, [&, type = type, block = block, doubled = doubled](galley_tensor t, const galley_tensor_info& info) {
      const std::string name = info.name;
      if (chosen.transposed.count(t))
        return;  // transformers would take its codes for those of the weight turned around: it is saved as numbers
      if (!book) book = table("four_bit.quant_map", four_bit_folder::code_book(type));
      if (!nested && doubled) nested = table("four_bit.nested_quant_map", four_bit_folder::nested_code_book());
      const Attrs text = Attrs().s("text", four_bit_folder::state_text(type, block, doubled, {info.shape, info.shape + info.rank}));
      const galley_tensor state =
          graph.node("four_bit_state", (name + ".quant_state").c_str(), {doubled ? graph.component(t, 3) : 0}, text)[0];
      graph.export_stored(t);
      graph.export_tensor(name + ".quant_map", book);
      if (doubled) graph.export_tensor(name + ".nested_quant_map", nested);
      graph.export_tensor(name + ".quant_state.bitsandbytes__" + (type == four_bit::kFp4 ? "fp4" : "nf4"), state);
    });
    if (!book) return;
    // Weights that were trained beside them are numbers, too.
    std::set<std::string> left = chosen.left;
    for (const galley_tensor t : chosen.weights)
      if (const galley_tensor_info info = graph.info(t); !galley_same_text(info.format, four_bit::kName)) left.insert(module_of(info.name));
    graph.config(galley::bitsandbytes::kConfigKey, four_bit_folder::config_text(type, doubled, {left.begin(), left.end()}));
  }

  bool skips_head_, saves_;
  How how_;
  std::vector<std::string> skip_;
  std::set<std::string> given_;
};

const bool registered = add(pack()) && add(unpack()) && four_bit_folder::add_ops() &&
                        add(format<components>(four_bit::kName, "four_bit_pack", "four_bit_unpack")) &&
                        add(strategy<QuantizeNf4>("quantize-nf4"));

}  // namespace

GALLEY_PLUGIN("quantize-nf4", "1.0.0");
