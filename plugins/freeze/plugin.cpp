// Frozen parameters: claims TRAINABLE, strongly, by name, by block or for embeddings. What another strategy has added (an adapter) is
// frozen only where a pattern names it.
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Freeze {
 public:
  explicit Freeze(const Options& options)
      : frozen_(options.strings("patterns")),
        trained_(options.strings("except")),
        blocks_(options.integer("blocks", 0)),
        embeddings_(options.boolean("embeddings")),
        all_(frozen_.empty() && !blocks_ && !embeddings_) {
    if (all_ && trained_.empty())
      invalid("nothing is named", "give 'patterns', 'blocks' or 'embeddings' to freeze, or 'except' to freeze all but those");
  }

  void claim(const GraphReader& graph, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_TRAINABLE)) return;
    check(graph);
    for (const Claim& parameter : claims) {
      if (trained_.match(parameter.name)) parameter.strong(1);
      else if (frozen_.match(parameter.name) || (*parameter.owner == '\0' && named_otherwise(graph, parameter))) parameter.strong(0);
    }
  }

 private:
  /// Of the model's own parameters: whether it is frozen without a pattern of its own.
  bool named_otherwise(const GraphReader& graph, const galley_subject& subject) const {
    if (all_ || (embeddings_ && subject.tensor_flags & GALLEY_TENSOR_EMBEDDING)) return true;
    const int64_t block = blocks_ ? graph.info(subject.tensor).block : -1;
    return block >= 0 && block < blocks_;
  }

  void check(const GraphReader& graph) const {
    int64_t blocks = 0;
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL))
      blocks = std::max(blocks, graph.node(n).block + 1);
    if (blocks_ > blocks)
      invalid("'blocks' is " + std::to_string(blocks_) + ", and the model has " + std::to_string(blocks),
              "the first " + std::to_string(blocks) + " are all of them");
  }

  Patterns frozen_, trained_;
  int64_t blocks_;
  bool embeddings_, all_;  // all: of the model, but what is excepted
};

const bool registered = add(strategy<Freeze>("freeze"));

}  // namespace

GALLEY_PLUGIN("freeze", "1.0.0");
