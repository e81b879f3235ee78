// Offloads saved tensors by name.
#include "galley/cpp/glob.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class OffloadSaved {
 public:
  explicit OffloadSaved(const Options& options) : memory_(options.string("memory")), patterns_(options.strings("patterns")) {}

  void decide(const galley_saved_set& set, uint32_t* choices) const {
    uint32_t memory = 0;
    while (memory < set.target->n_memories && set.target->memories[memory]->name != memory_) ++memory;
    if (memory == set.target->n_memories) invalid("there is no memory class '" + memory_ + "'");
    for (uint64_t i = 0; i < set.n_items; ++i) {
      const auto matches = [&](const std::string& pattern) { return glob_match(pattern, set.items[i]->name); };
      if (choices[i] == GALLEY_KEEP && std::any_of(patterns_.begin(), patterns_.end(), matches)) choices[i] = GALLEY_OFFLOAD_TO(memory);
    }
  }

 private:
  std::string memory_;
  std::vector<std::string> patterns_;
};

const bool registered = add(strategy<OffloadSaved>("offload-saved"));

}  // namespace

GALLEY_PLUGIN("offload-saved", "1.0.0");
