// Frozen weights as a GGUF file holds them (galley/cpp/gguf_blocks.hpp): claims that a parameter whose tensor lies in blocks in the model's
// file is stored so. What trains beside them, an adapter, is another strategy's business.
//
// Products and embeddings read the blocks themselves (models/ops); the op of the format is for whatever else reads numbers.
#include <map>

#include "galley/cpp/files.hpp"
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"
#include "gguf_blocks.hpp"

namespace {

using namespace galley::sdk;
namespace gguf_blocks = galley::gguf_blocks;

// ---- The format ---------------------------------------------------------------------------------------------------------------------

gguf_blocks::Type type_of(const Node& node) { return gguf_blocks::type_of(node.view()->attrs, node.view()->n_attrs); }

/// The shape does not follow from the bytes where they are not rows: it is that of the tensor that is there.
void unpack_shape(const Node& node, Shapes& out) {
  const gguf_blocks::Type type = type_of(node);
  const galley_operand& blocks = node.in(0);
  const int64_t bytes = gguf_blocks::bytes_of(type), numbers = gguf_blocks::numbers_of(type);
  if (blocks.dtype != GALLEY_U8 || blocks.rank != 2 || blocks.shape[1] % bytes)
    invalid(std::string(node.name()) + ": blocks of " + gguf_blocks::kTypeNames[type] + " have to be U8 (rows, a multiple of " +
            std::to_string(bytes) + "), and are " + shape_text(blocks));
  const uint32_t dtype = node.dtype(GALLEY_F32);
  if (!node.has_out(0)) return out.set(0, dtype, {blocks.shape[0], blocks.shape[1] / bytes * numbers});
  if (count(node.out(0)) != count(blocks) / bytes * numbers)
    invalid(std::string(node.name()) + ": blocks " + shape_text(blocks) + " are " + std::to_string(count(blocks) / bytes * numbers) +
            " numbers, and not " + shape_text(node.out(0)));
  out.set(0, dtype, node.out(0).shape, node.out(0).rank);
}

void unpack_reference(const Node& node) {
  const gguf_blocks::Type type = type_of(node);
  const int64_t numbers = gguf_blocks::numbers_of(type);
  for (int64_t i = 0; i < count(node.out(0)); ++i) {
    const uint8_t* const block = node.read<uint8_t>(0) + i / numbers * gguf_blocks::bytes_of(type);
    const int within = static_cast<int>(i % numbers);
    const gguf_blocks::Scale of = gguf_blocks::scale_of(type, block, within);
    node.write<double>(0)[i] = static_cast<double>(of.scale) * gguf_blocks::code_of(type, block, within) - static_cast<double>(of.less);
  }
}

Op& unpack() {
  static Op op("gguf_blocks_unpack", "x = scale · code − minimum, by blocks");
  op.input("blocks", GALLEY_ROLE_WHOLE)
      .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .attr("type", GALLEY_ATTR_STRING, GALLEY_ATTR_REQUIRED, "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K")
      .infer<unpack_shape>()
      .reference<unpack_reference>();
  // Bytes up to 122 make no scale that is infinite or NaN.
  for (uint32_t type = 0; type < gguf_blocks::kTypes; ++type) {
    static const char* const names[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};
    static const char* const dtypes[] = {"f32", "bf16", "f16"};
    const int64_t row = 3 * gguf_blocks::bytes_of(static_cast<gguf_blocks::Type>(type));
    op.test(names[type], {{GALLEY_U8, {5, row}, 0, 59}}, Attrs().s("type", gguf_blocks::kTypeNames[type]).s("dtype", dtypes[type % 3]));
  }
  return op;
}

void components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  const gguf_blocks::Type type = gguf_blocks::type_of(options.data(), static_cast<uint32_t>(options.size()));
  const int64_t numbers = gguf_blocks::numbers_of(type);
  if (shape.empty() || shape.back() % numbers)
    invalid(std::string(gguf_blocks::kTypeNames[type]) + " stores rows of whole blocks of " + std::to_string(numbers) + " numbers");
  int64_t rows = 1;
  for (size_t k = 0; k + 1 < shape.size(); ++k) rows *= shape[k];
  out.add("", GALLEY_U8, {rows, shape.back() / numbers * gguf_blocks::bytes_of(type)}, 0);
}

// ---- The strategy -------------------------------------------------------------------------------------------------------------------

class QuantizeGguf {
 public:
  static constexpr uint32_t phase = GALLEY_PHASE_READ;

  explicit QuantizeGguf(const Options&) {
    for (uint32_t type = 0; type < gguf_blocks::kTypes; ++type) formats_[type].s("type", gguf_blocks::kTypeNames[type]);
  }

  void claim(const GraphReader& graph, const Claims& claims) const {
    const bool trainable = claims.about(GALLEY_FACET_TRAINABLE);
    if (!trainable && !claims.about(GALLEY_FACET_STORAGE)) return;
    const std::map<std::string, gguf_blocks::Type> types = find(graph);
    const galley_run_info run = graph.run();
    for (const Claim& parameter : claims) {
      if (parameter.kind != GALLEY_SUBJECT_PARAMETER || *parameter.owner) continue;
      const auto at = types.find(graph.info(parameter.tensor).source_name);
      if (at == types.end()) continue;
      if (trainable) {
        // What is only evaluated, sampled from or exported trains nothing.
        if (run.purpose != GALLEY_PURPOSE_TRAIN) parameter.weak(0);
        continue;
      }
      if (parameter.trainable)
        invalid(std::string("'") + parameter.name + "' lies in blocks of " + gguf_blocks::kTypeNames[at->second] + " in " + run.model +
                    " and is to be trained; a step is smaller than what its codes can tell apart",
                "train an adapter beside it, use \"lora\" { rank = 16 }, or freeze it");
      parameter.weak(0, gguf_blocks::kName, formats_[at->second]);
    }
  }

 private:
  /// Which tensors of the model's file lie in blocks.
  static std::map<std::string, gguf_blocks::Type> find(const GraphReader& graph) {
    std::map<std::string, gguf_blocks::Type> out;
    const std::string model = graph.run().model;
    if (model.empty() || !graph.config_of("gguf_types")) return out;
    for (const FileTensor& tensor : read_tensors(model))
      if (const gguf_blocks::Type type = gguf_blocks::type_named(tensor.dtype.c_str()); type != gguf_blocks::kTypes)
        out[tensor.name] = type;
    return out;
  }

  Attrs formats_[gguf_blocks::kTypes];
};

const bool registered = add(unpack()) && add(format<components>(gguf_blocks::kName, nullptr, "gguf_blocks_unpack")) &&
                        add(strategy<QuantizeGguf>("quantize-gguf"));

}  // namespace

GALLEY_PLUGIN("quantize-gguf", "1.0.0");
