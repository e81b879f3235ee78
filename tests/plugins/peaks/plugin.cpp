// For tests: a strategy that searches. It draws choices, asks for their peak, and says on stderr what the last answer was. With a budget it
// takes what others accept, and says that.
#include <cstdint>
#include <cstdio>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Peaks {
 public:
  explicit Peaks(const Options& options)
      : calls_(options.integer("calls", 1)),
        seed_(static_cast<uint64_t>(options.integer("seed", 1))),
        share_(options.number("share", 0.5)),
        memory_(static_cast<uint32_t>(options.integer("memory", 0))),
        choice_(options.integer("choice", -1)),
        each_(options.number("each", 0)),
        offload_(options.number("offload", 0)),
        budget_(options.integer("budget", 0)) {}

  int64_t budget() const { return budget_; }

  void decide(const galley_saved_set& set, uint32_t* choices) const {
    if (budget_) return accept(set, choices);
    int64_t peak = 0;
    uint64_t state = seed_;
    for (int64_t call = 0; call < calls_; ++call) {
      for (uint64_t i = 0; i < set.n_items; ++i) choices[i] = draw(state) < share_ ? drawn(set, *set.items[i], state) : GALLEY_KEEP;
      galley_error error = GALLEY_ERROR_INIT;
      if (set.peak(set.context, choices, memory_, &peak, &error) != GALLEY_OK) invalid(error.text);
    }
    if (choice_ >= 0) choices[0] = static_cast<uint32_t>(choice_);
    std::fprintf(stderr, "peaks: %lld\n", static_cast<long long>(peak));
  }

 private:
  uint32_t drawn(const galley_saved_set& set, const galley_saved_item& item, uint64_t& state) const {
    if (item.flags & GALLEY_SAVED_OFFLOADABLE && draw(state) < offload_) return GALLEY_OFFLOAD_TO(set.target->n_memories - 1);
    if (!(item.flags & GALLEY_SAVED_RECOMPUTABLE)) return GALLEY_KEEP;
    return draw(state) < each_ ? GALLEY_RECOMPUTE_EACH : GALLEY_RECOMPUTE;
  }

  static void accept(const galley_saved_set& set, uint32_t* choices) {
    for (uint64_t i = 0; i < set.n_items; ++i) {
      const galley_saved_item& item = *set.items[i];
      std::fprintf(stderr, "accepted for %s:", item.name);
      for (uint32_t k = 0; k < item.n_accepted; ++k) std::fprintf(stderr, " %u", item.accepted[k]);
      std::fprintf(stderr, "\n");
      if (item.n_accepted) choices[i] = item.accepted[0];
    }
  }

  static double draw(uint64_t& state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) / 9007199254740992.0;
  }

  int64_t calls_;
  uint64_t seed_;
  double share_;
  uint32_t memory_;
  int64_t choice_;
  double each_, offload_;
  int64_t budget_;
};

const bool registered = add(strategy<Peaks>("peaks"));

}  // namespace

GALLEY_PLUGIN("peaks", "1.0.0");
