// The format "brain": one component, the upper half of each F32, rounded to even.
#include <algorithm>
#include <cstring>

#include "galley/cpp/glob.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

double rounded(double value) {
  const float x = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7FFFFFFFu) <= 0x7F800000u) bits += 0x7FFFu + (bits >> 16 & 1u);
  bits &= 0xFFFF0000u;
  float out = 0;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

void pack_shape(const Node& node, Shapes& out) { out.set(0, GALLEY_BF16, node.in(0).shape, node.in(0).rank); }
void pack_reference(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i) node.write<double>(0)[i] = rounded(node.read<double>(0)[i]);
}
void unpack_shape(const Node& node, Shapes& out) { out.set(0, GALLEY_F32, node.in(0).shape, node.in(0).rank); }
void unpack_reference(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i) node.write<double>(0)[i] = node.read<double>(0)[i];
}

Op& pack() {
  static Op op("brain_pack", "y = x rounded to bfloat16, ties to even");
  op.input("x", GALLEY_ROLE_ROWS).output("y", GALLEY_ROLE_ROWS).infer<pack_shape>().reference<pack_reference>();
  op.test("odd", {{GALLEY_F32, {37, 671}}});
  return op;
}
Op& unpack() {
  static Op op("brain_unpack", "y = x as F32");
  op.input("x", GALLEY_ROLE_ROWS)
      .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
      .infer<unpack_shape>()
      .reference<unpack_reference>();
  op.test("odd", {{GALLEY_BF16, {37, 671}}});
  return op;
}

void components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  if (!options.empty()) invalid(std::string("brain has no option '") + options[0]->name + "'");
  out.add("", GALLEY_BF16, shape, 1);
}

class Storage {
 public:
  explicit Storage(const Options& options)
      : format_(options.string("format")),
        parameters_(options.strings("parameters")),
        states_(options.strings("states")),
        exports_(options.boolean("export", false)) {
    if (const int64_t block = options.integer("block", 0)) attrs_.i("block", block);
  }

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_STORAGE)) return;
    for (const Claim& tensor : claims) {
      const auto& patterns = tensor.kind == GALLEY_SUBJECT_PARAMETER ? parameters_ : states_;
      if (std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return glob_match(pattern, tensor.name); }))
        tensor.strong(0, format_.c_str(), attrs_);
    }
  }

  /// Saves what is stored, and says so.
  void save(ExportGraph& graph) const {
    if (!exports_) return;
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      const galley_tensor_info info = graph.info(t);
      if (info.kind != GALLEY_KIND_PARAMETER) continue;
      for (const std::string& pattern : parameters_)
        if (glob_match(pattern, info.name)) graph.export_stored(t);
    }
    graph.config("stored_in", "\"" + format_ + "\"");
  }

 private:
  std::string format_;
  Attrs attrs_;
  std::vector<std::string> parameters_, states_;
  bool exports_;
};

const bool registered = add(pack()) && add(unpack()) &&
                        add(format<components>("brain", "brain_pack", "brain_unpack", GALLEY_FORMAT_EXACT | GALLEY_FORMAT_TRAINABLE)) &&
                        add(strategy<Storage>("bf16-storage"));

}  // namespace

GALLEY_PLUGIN("bf16-storage", "1.0.0");
