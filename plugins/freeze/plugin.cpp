// Frozen parameters: claims TRAINABLE, strongly, by name. What another strategy has added (an adapter) is frozen only where a pattern
// names it.
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Freeze {
 public:
  explicit Freeze(const Options& options) : frozen_(options.strings("patterns")), trained_(options.strings("except")) {
    if (frozen_.empty() && trained_.empty()) invalid("nothing is named: give 'patterns' to freeze, or 'except' to freeze all but those");
  }

  void claim(const GraphReader& graph, const galley_subject& subject, Claim& out) const {
    if (subject.kind != GALLEY_SUBJECT_PARAMETER || subject.facet != GALLEY_FACET_TRAINABLE) return;
    if (is_first_parameter(graph, subject.tensor)) {
      frozen_.check(graph);
      trained_.check(graph);
    }
    const bool own = *subject.owner == '\0';  // the model's
    if (trained_.match(subject.name)) out.strong(1);
    else if (frozen_.empty() ? own : frozen_.match(subject.name)) out.strong(0);
  }

 private:
  Patterns frozen_, trained_;
};

const bool registered = add(strategy<Freeze>("freeze"));

}  // namespace

GALLEY_PLUGIN("freeze", "1.0.0");
