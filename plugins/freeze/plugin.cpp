// Frozen parameters: claims TRAINABLE, strongly, by name. What another strategy has added (an adapter) is frozen only where a pattern
// names it.
#include "galley/cpp/glob.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

bool matches_any(const std::vector<std::string>& patterns, const char* name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return glob_match(pattern, name); });
}

class Freeze {
 public:
  explicit Freeze(const Options& options) : frozen_(options.strings("patterns")), trained_(options.strings("except")) {
    if (frozen_.empty() && trained_.empty()) invalid("nothing is named: give 'patterns' to freeze, or 'except' to freeze all but those");
  }

  void claim(const GraphReader& graph, const galley_subject& subject, Claim& out) const {
    if (subject.kind != GALLEY_SUBJECT_PARAMETER || subject.facet != GALLEY_FACET_TRAINABLE) return;
    check_patterns(graph, subject.tensor);
    const bool own = *subject.owner == '\0';  // the model's
    if (matches_any(trained_, subject.name)) out.strong(1);
    else if (frozen_.empty() ? own : matches_any(frozen_, subject.name)) out.strong(0);
  }

 private:
  /// A pattern that finds nothing is a typing error that would train what was to be frozen. Looked at once, with the first parameter.
  void check_patterns(const GraphReader& graph, galley_tensor asked) const {
    std::vector<std::string> names;
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      const galley_tensor_info info = graph.info(t);
      if (info.kind != GALLEY_KIND_PARAMETER) continue;
      if (names.empty() && t != asked) return;
      names.emplace_back(info.name);
    }
    for (const auto* patterns : {&frozen_, &trained_})
      for (const std::string& pattern : *patterns)
        if (std::none_of(names.begin(), names.end(), [&](const std::string& name) { return glob_match(pattern, name); }))
          invalid("no parameter is called '" + pattern + "'; " + nearest_names(pattern, names));
  }

  std::vector<std::string> frozen_, trained_;
};

const bool registered = add(strategy<Freeze>("freeze"));

}  // namespace

GALLEY_PLUGIN("freeze", "1.0.0");
