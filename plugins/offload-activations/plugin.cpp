// What the backward pass reads of the forward pass rests in another memory class between the two (Rhu et al., "vDNN: Virtualized deep
// neural networks for scalable, memory-efficient neural network design", 2016, arXiv:1602.08124): copied out after the kernel that makes
// it, copied back before the block whose backward reads it, both beside kernels. Decides on saved tensors by name and size, on what
// strategies before it keep. Where another one holds a budget, this says what it may move.
#include "galley/cpp/memory.hpp"
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class OffloadActivations {
 public:
  explicit OffloadActivations(const Options& options)
      : memory_(options.string("memory", "")), patterns_(options.strings("patterns")), min_size_(options.integer("min_size")) {}

  void decide(const galley_saved_set& set, uint32_t* choices) const {
    const uint32_t memory = other_memory(*set.target, memory_, "saved tensors");
    std::vector<std::string> names;
    for (uint64_t i = 0; i < set.n_items; ++i) names.emplace_back(set.items[i]->name);
    for (const std::string& pattern : patterns_)
      if (std::none_of(names.begin(), names.end(), [&](const std::string& name) { return glob_match(pattern, name); }))
        invalid("no saved tensor is called '" + pattern + "'; " + nearest_names(pattern, names));
    int64_t largest = 0;
    for (uint64_t i = 0; i < set.n_items; ++i) {
      const galley_saved_item& item = *set.items[i];
      const auto matches = [&](const std::string& pattern) { return glob_match(pattern, item.name); };
      if (std::none_of(patterns_.begin(), patterns_.end(), matches)) continue;
      largest = std::max(largest, item.bytes);
      if (choices[i] == GALLEY_KEEP && item.bytes >= min_size_) choices[i] = GALLEY_OFFLOAD_TO(memory);
    }
    if (largest < min_size_)
      invalid("no saved tensor that is named has min_size = " + std::to_string(min_size_) + " bytes; the largest has " +
                  std::to_string(largest),
              "give a smaller min_size");
  }

 private:
  std::string memory_;  // "": the first beside class 0
  std::vector<std::string> patterns_;
  int64_t min_size_;
};

const bool registered = add(strategy<OffloadActivations>("offload-activations"));

}  // namespace

GALLEY_PLUGIN("offload-activations", "1.0.0");
