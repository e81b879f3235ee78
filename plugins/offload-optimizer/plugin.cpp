// The states of an optimizer rest in another memory class, the pinned memory beside a GPU, and come to the device part by part, beside the
// kernels of the update: ZeRO-Offload (Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model Training", 2021, arXiv:2101.06840), but
// that the device computes the steps and not the processor. Beside any optimizer: the host splits the update by the grain of its ops.
//
// Claims PLACEMENT of states, and with `masters` of weights in F32 of which the model reads a copy in 16 bit; strongly where `parameters`
// names whose. What evaluates, samples or exports leaves them where they are read.
#include "galley/cpp/memory.hpp"
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class OffloadOptimizer {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_AFTER;

  explicit OffloadOptimizer(const Options& options)
      : memory_(options.string("memory", "")),
        masters_(options.boolean("masters")),
        parameters_(options.strings("parameters")),
        min_size_(options.integer("min_size")) {}

  void claim(const GraphReader& graph, const Claims& claims) const {
    const galley_run_info run = graph.run();
    if (run.purpose != GALLEY_PURPOSE_TRAIN) return;
    // With the first facet already, before anything is built: whether there is such a memory.
    const char* const memory = run.target->memories[other_memory(*run.target, memory_, kWhat)]->name;
    if (!claims.about(GALLEY_FACET_PLACEMENT)) return;
    for (const Claim& tensor : claims) {
      const bool master = masters_ && tensor.kind == GALLEY_SUBJECT_PARAMETER && tensor.trainable;
      if (!master && tensor.kind != GALLEY_SUBJECT_STATE) continue;
      if (!(master ? takes(graph, tensor.tensor, tensor.tensor) : moves(graph, tensor.tensor))) continue;
      const int64_t where = master ? GALLEY_PLACEMENT_MASTER : GALLEY_PLACEMENT_ALWAYS;
      if (parameters_.empty()) tensor.weak(where, memory);
      else tensor.strong(where, memory);
    }
  }

  /// After the optimizers' stage, where their states are made. Makes nothing: a plan that moves no state is refused.
  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!call.trains() || masters_) return;  // without a master that moves, the host refuses
    uint64_t states = 0, named = 0;
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      if (moves(graph, t)) return;
      const galley_tensor_info info = graph.info(t);
      if (info.kind != GALLEY_KIND_STATE || !info.parameter) continue;
      ++states;
      named += is_named(graph, info.parameter);
    }
    if (!states)
      invalid("the optimizer keeps no state of any parameter, so there is nothing to move",
              "leave this out; gradients and weights stay on the device");
    if (!named)
      invalid("of the parameters that 'parameters' names, the optimizer keeps no state", "name others, or leave 'parameters' out");
    invalid("none of the optimizer's states has min_size = " + std::to_string(min_size_) + " elements", "give a smaller min_size");
  }

 private:
  static constexpr const char* kWhat = "the states of the optimizer";

  bool is_named(const GraphReader& graph, galley_tensor parameter) const {
    return parameters_.empty() || parameters_.match(graph.info(parameter).name);
  }
  bool moves(const GraphReader& graph, galley_tensor t) const {
    const galley_tensor_info info = graph.info(t);
    return info.kind == GALLEY_KIND_STATE && info.parameter && takes(graph, t, info.parameter);
  }
  /// By size and by the name of its parameter.
  bool takes(const GraphReader& graph, galley_tensor t, galley_tensor parameter) const {
    const galley_tensor_info info = graph.info(t);
    int64_t elements = 1;
    for (uint32_t axis = 0; axis < info.rank; ++axis) elements *= info.shape[axis];
    return elements >= min_size_ && is_named(graph, parameter);
  }

  std::string memory_;  // "": the first beside class 0
  bool masters_;
  Patterns parameters_;
  int64_t min_size_;
};

const bool registered = add(strategy<OffloadOptimizer>("offload-optimizer"));

}  // namespace

GALLEY_PLUGIN("offload-optimizer", "1.0.0");
