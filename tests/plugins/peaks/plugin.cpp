// For tests: a strategy that searches. It draws choices, asks for their peak, and says on stderr what the last answer was.
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
        choice_(options.integer("choice", -1)) {}

  void decide(const galley_saved_set& set, uint32_t* choices) const {
    int64_t peak = 0;
    uint64_t state = seed_;
    for (int64_t call = 0; call < calls_; ++call) {
      for (uint64_t i = 0; i < set.n_items; ++i)
        choices[i] = set.items[i]->flags & GALLEY_SAVED_RECOMPUTABLE && draw(state) < share_ ? GALLEY_RECOMPUTE : GALLEY_KEEP;
      galley_error error = GALLEY_ERROR_INIT;
      if (set.peak(set.context, choices, memory_, &peak, &error) != GALLEY_OK) invalid(error.text);
    }
    if (choice_ >= 0) choices[0] = static_cast<uint32_t>(choice_);
    std::fprintf(stderr, "peaks: %lld\n", static_cast<long long>(peak));
  }

 private:
  static double draw(uint64_t& state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) / 9007199254740992.0;
  }

  int64_t calls_;
  uint64_t seed_;
  double share_;
  uint32_t memory_;
  int64_t choice_;
};

const bool registered = add(strategy<Peaks>("peaks"));

}  // namespace

GALLEY_PLUGIN("peaks", "1.0.0");
