// Mixed precision (Micikevicius et al., "Mixed Precision Training", 2018, arXiv:1710.03740): claims COMPUTE of the nodes that pay in 16 bit
// and leaves the casts to the host. In FP16, gradients are kept from underflow by a scale on the loss: a node of the window part puts it
// into the step's scalars, a node of the update changes it by what it finds, and skips the step where gradients have overflowed.
#include "galley/cpp/glob.hpp"
#include "galley/cpp/strategy.hpp"
#include "scale.hpp"

namespace {

using namespace galley::sdk;

class Amp {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_CHECK;

  explicit Amp(const Options& options)
      : compute_(options.string("compute") == "fp16" ? "f16" : options.string("compute")),
        weights_(options.string("weights")),
        except_(options.strings("except")),
        dynamic_(options.word("loss_scale") == "dynamic" || (!options.given("loss_scale") && compute_ == "f16")),
        scales_(dynamic_ || options.given("loss_scale")),
        init_(dynamic_  ? options.number("init")
              : scales_ ? options.number("loss_scale")
                        : 1) {
    if (weights_ != "master" && compute_ == "tf32") invalid("weights = \"" + weights_ + "\" goes with 16 bit: with tf32, weights are F32");
    if (weights_ == "bf16" && compute_ != "bf16") invalid("weights = \"bf16\" goes with compute = \"bf16\"");
    attrs_.i("growth_interval", dynamic_ ? options.integer("growth_interval") : 1)
        .f("growth", dynamic_ ? options.number("growth") : 1)
        .f("backoff", dynamic_ ? options.number("backoff") : 1)
        .i("max_skips", options.integer("max_skips"));
    max_skips_ = options.integer("max_skips");
  }

  void claim(const GraphReader&, const Claims& claims) const {
    const int64_t weights = weights_ == "cast-on-use" ? GALLEY_WEIGHTS_CAST_ON_USE : GALLEY_WEIGHTS_DERIVED;
    if (claims.about(GALLEY_FACET_COMPUTE))
      for (const Claim& node : claims) {
        if (matches(node.name)) node.strong(0, "f32");
        else if (node.op_flags & GALLEY_OP_LOW) node.weak(weights, compute_.c_str());
        else if (node.op_flags & GALLEY_OP_FULL) node.weak(0, "f32");
      }
    if (claims.about(GALLEY_FACET_STORAGE) && weights_ == "bf16")
      for (const Claim& tensor : claims)
        if (tensor.kind == GALLEY_SUBJECT_PARAMETER && tensor.trainable) tensor.weak(0, "bf16");
  }

  void window(Graph& graph) const {
    if (scales_) graph.node("copy", "amp.scale_of_window", {scale(graph)}, {}, {graph.scalar(GALLEY_SCALAR_LOSS_SCALE)});
  }

  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!scales_ || !call.trains()) return;
    const std::vector<galley_tensor> inputs = {graph.scalar(GALLEY_SCALAR_FOUND_INF), scale(graph),
                                               number(graph, "amp.good_steps", GALLEY_I32, 0),
                                               number(graph, "amp.skipped_in_a_row", GALLEY_I32, 0)};
    const std::vector<galley_tensor> out =
        graph.node("update_scale", "amp.update_scale", inputs, attrs_, {graph.scalar(GALLEY_SCALAR_APPLY), 0});
    graph.report(scale(graph), "loss_scale");
    graph.stop_if(out[1], "gradients have overflowed in " + std::to_string(max_skips_) + " steps in a row",
                  dynamic_ ? "the loss diverges, or the model does not fit fp16: try compute = \"bf16\"" : "try loss_scale = \"dynamic\"");
  }

 private:
  bool matches(const char* name) const {
    return std::any_of(except_.begin(), except_.end(), [&](const std::string& pattern) { return glob_match(pattern, name); });
  }

  galley_tensor scale(Graph& graph) const { return number(graph, "amp.scale", GALLEY_F32, init_); }
  /// A state of one number, which another part of the program may have made.
  static galley_tensor number(Graph& graph, const char* name, uint32_t dtype, double value) {
    const galley_tensor found = graph.find(name);
    return found ? found : graph.number(name, dtype, value);
  }

  std::string compute_, weights_;
  std::vector<std::string> except_;
  bool dynamic_, scales_;
  double init_;
  int64_t max_skips_ = 0;
  Attrs attrs_;
};

const bool registered = add(galley::amp::update_scale()) && add(strategy<Amp>("amp"));

}  // namespace

GALLEY_PLUGIN("amp", "1.0.0");
