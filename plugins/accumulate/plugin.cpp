// Gradient accumulation: a window of several micro-batches between two updates. The host adds the gradients up and divides the loss by
// the valid tokens of the whole window, so that micro-batches of unequal length weigh as they would in one large batch; all that is
// decided here is their number.
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Accumulate {
 public:
  explicit Accumulate(const Options& options) : steps_(options.integer("steps")), tokens_(options.integer("tokens")) {
    if (tokens_ > 0 && steps_ > 1)
      throw Failure(GALLEY_INVALID, "'steps' and 'tokens' are two ways to say how large a window is: give one");
  }

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_WINDOW)) return;
    for (const Claim& run : claims) {
      if (tokens_ > 0) run.strong(tokens_, "tokens");
      else run.strong(steps_);
    }
  }

 private:
  int64_t steps_, tokens_;
};

const bool registered = add(strategy<Accumulate>("accumulate"));

}  // namespace

GALLEY_PLUGIN("accumulate", "1.0.0");
