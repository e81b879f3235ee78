// Layer-wise decay of the learning rate (Howard, Ruder, "Universal language model fine-tuning for text classification", ACL 2018,
// arXiv:1801.06146: discriminative fine-tuning): the last block, and what comes after it, learns at the optimizer's own rate, each block
// before it at `decay` times the rate of the one after it, embeddings as if they were a block before the first. An adapter's parameters
// learn at the rate of the block that they adapt. A strategy of rates alone: any optimizer multiplies by them, and nothing takes memory.
#include <algorithm>
#include <cmath>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class LayerDecay {
 public:
  static constexpr uint32_t phase = GALLEY_PHASE_READ;
  explicit LayerDecay(const Options& options) : decay_(options.number("decay")) {}

  void model(ModelGraph& graph) const {
    int64_t blocks = 0;
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) blocks = std::max(blocks, graph.info(t).block + 1);
    if (blocks == 0) invalid("the model has no blocks, so that no layer is before another", "leave this out");
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      const galley_tensor_info info = graph.info(t);
      if (info.kind != GALLEY_KIND_PARAMETER) continue;
      const bool after = info.block < 0 && !(info.flags & GALLEY_TENSOR_EMBEDDING);  // the last norm, the head
      const int64_t depth = after ? 0 : blocks - 1 - info.block;
      graph.scale_rate(t, std::pow(decay_, static_cast<double>(depth)));
    }
  }

 private:
  double decay_;
};

const bool registered = add(strategy<LayerDecay>("layer-decay"));

}  // namespace

GALLEY_PLUGIN("layer-decay", "1.0.0");
