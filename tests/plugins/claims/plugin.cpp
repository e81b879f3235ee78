// For tests: says one thing of everything that it is asked about.
#include <string>
#include <utility>

#include "galley/cpp/glob.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Told {
 public:
  explicit Told(const Options& options)
      : facet_(number_of(options.string("facet"))),
        value_(options.string("value")),
        of_(options.string("of")),
        number_(options.integer("number")),
        strong_(options.boolean("strong")),
        strength_(options.integer("strength", 0)) {}
  int64_t strength() const { return strength_; }

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(facet_)) return;
    for (const Claim& subject : claims) {
      if (!glob_match(of_, subject.name)) continue;
      if (strong_) subject.strong(number_, value_.c_str());
      else subject.weak(number_, value_.c_str());
    }
  }

 private:
  static uint32_t number_of(const std::string& facet) {
    static constexpr std::pair<const char*, uint32_t> all[] = {{"trainable", GALLEY_FACET_TRAINABLE},
                                                               {"storage", GALLEY_FACET_STORAGE},
                                                               {"compute", GALLEY_FACET_COMPUTE},
                                                               {"gradient_dtype", GALLEY_FACET_GRADIENT_DTYPE},
                                                               {"gradient_lifetime", GALLEY_FACET_GRADIENT_LIFETIME},
                                                               {"update", GALLEY_FACET_UPDATE},
                                                               {"placement", GALLEY_FACET_PLACEMENT},
                                                               {"window", GALLEY_FACET_WINDOW}};
    for (const auto& [name, number] : all)
      if (facet == name) return number;
    invalid("no facet is called '" + facet + "'");
  }
  uint32_t facet_;
  std::string value_, of_;
  int64_t number_;
  bool strong_;
  int64_t strength_;
};

/// The SDK has no way to say a strength that there is not.
const galley_strategy& with_strength() {
  static const galley_strategy sdks = *strategy<Told>("claims");
  static galley_strategy table = sdks;
  table.get = [](void*, const char* id) -> const void* {
    static const galley_claim claims = {
        sizeof(galley_claim), 1,
        [](void* instance, const galley_graph_reader* reader, galley_graph* graph, const galley_claim_call* call, galley_error* error) {
          const auto* inner = static_cast<const galley_claim*>(sdks.get(sdks.self, GALLEY_CLAIM));
          struct Context {
            const galley_claim_call* call;
            uint32_t strength;
          } context = {call, static_cast<uint32_t>(static_cast<const Told*>(instance)->strength())};
          galley_claim_call changed = *call;
          changed.context = &context;
          changed.claim = [](void* c, uint64_t subject, const galley_claim_value* value, galley_error* e) {
            const auto& told = *static_cast<const Context*>(c);
            galley_claim_value said = *value;
            if (told.strength) said.strength = told.strength;
            return told.call->claim(told.call->context, subject, &said, e);
          };
          return inner->claim(instance, reader, graph, &changed, error);
        },
        0};
    return galley_same_text(id, GALLEY_CLAIM) ? &claims : sdks.get(sdks.self, id);
  };
  return table;
}

const bool registered = add(&with_strength());

}  // namespace

GALLEY_PLUGIN("claims", "1.0.0");
