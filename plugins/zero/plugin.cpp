// The redundancy optimizer: what each process of data-parallel training would have whole is divided between them (Rajbhandari et al.,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020, arXiv:1910.02054, stages 1 to 3). Beside any optimizer,
// adapter and format: it claims SHARD, and the host divides.
//
// Stage 1: states, and F32 weights of which the model reads a copy in 16 bit. Stage 2: gradients, so that each micro-batch's are added to
// the parts of those that update them. Stage 3: all weights, the frozen ones too. `within` divides among neighbours only, and each group of
// them has everything, as in PyTorch's hybrid sharding (Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel",
// 2023, arXiv:2304.11277, section 3.2.2): weights go by the fast link, and parts of gradients alone by the slow one. What evaluates, samples or exports alone has one process
// and divides nothing; nor does a run of one.
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Zero {
 public:
  explicit Zero(const Options& options)
      : stage_(options.integer("stage")),
        min_size_(options.integer("min_size")),
        within_(options.string("within")),
        parameters_(options.strings("parameters")) {}

  void claim(const GraphReader& graph, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_SHARD) || graph.run().purpose != GALLEY_PURPOSE_TRAIN) return;
    for (const Claim& tensor : claims) {
      const int64_t parts = claimed(tensor);
      if (parts == GALLEY_SHARD_NO || !takes(graph, tensor.tensor, tensor.parameter)) continue;
      if (parameters_.empty()) tensor.weak(parts, within_.empty() ? nullptr : within_.c_str());
      else tensor.strong(parts, within_.empty() ? nullptr : within_.c_str());
    }
  }

 private:
  int64_t claimed(const Claim& tensor) const {
    switch (tensor.kind) {
      case GALLEY_SUBJECT_STATE: return tensor.parameter ? GALLEY_SHARD_YES : GALLEY_SHARD_NO;
      case GALLEY_SUBJECT_GRADIENT: return stage_ >= 2 ? GALLEY_SHARD_YES : GALLEY_SHARD_NO;
      default: return stage_ >= 3 ? GALLEY_SHARD_YES : tensor.trainable ? GALLEY_SHARD_MASTER : GALLEY_SHARD_NO;
    }
  }
  /// By size and by the name of its parameter.
  bool takes(const GraphReader& graph, galley_tensor t, galley_tensor parameter) const {
    const galley_tensor_info info = graph.info(t);
    int64_t elements = 1;
    for (uint32_t axis = 0; axis < info.rank; ++axis) elements *= info.shape[axis];
    return elements >= min_size_ && (parameters_.empty() || parameters_.match(graph.info(parameter).name));
  }

  int64_t stage_, min_size_;
  std::string within_;  // an axis; "": of all processes
  Patterns parameters_;
};

const bool registered = add(strategy<Zero>("zero"));

}  // namespace

GALLEY_PLUGIN("zero", "1.0.0");
