// Recomputation (Chen, Xu, Zhang, Guestrin 2016, "Training deep nets with sublinear memory cost", arXiv:1604.06174): of what forward
// leaves for backward only the hidden states that enter every n-th block are kept, and what lies outside blocks. Backward computes the
// rest from them, n blocks at a time.
//
// With no more than the input of the first block kept ("input"), each block is recomputed from there and dropped when backward has left it:
// the memory of one block, in time that grows with the square of the depth. What takes no product ("cheap": norms, activations, gates,
// dropout) is recomputed in next to no time, which is the first thing that the paper proposes (section 4.2). With a budget, search.hpp
// chooses tensor by tensor.
#include <algorithm>
#include <cmath>

#include "search.hpp"

namespace {

using namespace galley::sdk;

class Recompute {
 public:
  explicit Recompute(const Options& options)
      : policy_(options.string("policy")), every_(options.integer("every", 1)), budget_(options.integer("budget", 0)) {
    if (budget_ && (policy_ != "every" || options.given("every")))
      invalid("a 'budget' chooses by itself: it goes without 'policy' and 'every'");
    if (policy_ != "every" && options.given("every")) invalid("'every' goes with the policy 'every', not with '" + policy_ + "'");
  }

  int64_t budget() const { return budget_; }

  void decide(const galley_saved_set& set, uint32_t* choices) const {
    if (budget_) {
      const std::vector<uint32_t> found = galley::recompute::Search(set, budget_).run();
      std::copy(found.begin(), found.end(), choices);
      return;
    }
    if (policy_ == "none") return;
    const bool input = policy_ == "input", cheap = policy_ == "cheap";
    const int64_t n = policy_ == "sqrt" ? std::max<int64_t>(1, std::llround(std::sqrt(static_cast<double>(set.blocks))))
                      : input           ? std::max<int64_t>(1, set.blocks)
                                        : every_;
    for (uint64_t i = 0; i < set.n_items; ++i) {
      const galley_saved_item& item = *set.items[i];
      const int64_t enters = item.block + 1;  // a block's input is made by the block before it
      const bool joins = item.flags & GALLEY_SAVED_BLOCK_INPUT;
      // Products and attention take hundreds of operations a byte; elementwise work counts as none, or few.
      const bool stays = cheap ? joins || item.flops > static_cast<double>(item.bytes) : joins && (enters % n == 0 || enters == set.blocks);
      if (item.block >= 0 && !stays && item.flags & GALLEY_SAVED_RECOMPUTABLE && choices[i] == GALLEY_KEEP)
        choices[i] = input ? GALLEY_RECOMPUTE_EACH : GALLEY_RECOMPUTE;
    }
  }

 private:
  std::string policy_;
  int64_t every_;
  int64_t budget_;  ///< bytes; 0: none
};

const bool registered = add(strategy<Recompute>("recompute"));

}  // namespace

GALLEY_PLUGIN("recompute", "1.0.0");
