// Recomputation (Chen, Xu, Zhang, Guestrin 2016, "Training deep nets with sublinear memory cost", arXiv:1604.06174): of what forward
// leaves for backward only the hidden states that enter every n-th block are kept, and what lies outside blocks. Backward computes the
// rest from them, n blocks at a time.
#include <algorithm>
#include <cmath>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Recompute {
 public:
  explicit Recompute(const Options& options) : policy_(options.string("policy")), every_(options.integer("every", 1)) {
    if (policy_ != "every" && options.given("every")) invalid("'every' goes with the policy 'every', not with '" + policy_ + "'");
  }

  void decide(const galley_saved_set& set, uint32_t* choices) const {
    if (policy_ == "none") return;
    const int64_t n = policy_ == "sqrt" ? std::max<int64_t>(1, std::llround(std::sqrt(static_cast<double>(set.blocks)))) : every_;
    for (uint64_t i = 0; i < set.n_items; ++i) {
      const galley_saved_item& item = *set.items[i];
      const int64_t enters = item.block + 1;  // a block's input is made by the block before it
      const bool stays = item.flags & GALLEY_SAVED_BLOCK_INPUT && (enters % n == 0 || enters == set.blocks);
      if (item.block >= 0 && !stays && item.flags & GALLEY_SAVED_RECOMPUTABLE) choices[i] = GALLEY_RECOMPUTE;
    }
  }

 private:
  std::string policy_;
  int64_t every_;
};

const bool registered = add(strategy<Recompute>("recompute"));

}  // namespace

GALLEY_PLUGIN("recompute", "1.0.0");
