// For tests: says one thing of everything that it is asked about.
#include <string>
#include <utility>

#include "galley/cpp/glob.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Claims {
 public:
  explicit Claims(const Options& options)
      : facet_(number_of(options.string("facet"))),
        value_(options.string("value")),
        of_(options.string("of")),
        number_(options.integer("number")),
        strong_(options.boolean("strong")) {}

  void claim(const GraphReader&, const galley_subject& subject, Claim& out) const {
    if (subject.facet != facet_ || !glob_match(of_, subject.name)) return;
    if (strong_) out.strong(number_, value_.c_str());
    else out.weak(number_, value_.c_str());
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
                                                               {"shard", GALLEY_FACET_SHARD},
                                                               {"window", GALLEY_FACET_WINDOW}};
    for (const auto& [name, number] : all)
      if (facet == name) return number;
    invalid("no facet is called '" + facet + "'");
  }
  uint32_t facet_;
  std::string value_, of_;
  int64_t number_;
  bool strong_;
};

const bool registered = add(strategy<Claims>("claims"));

}  // namespace

GALLEY_PLUGIN("claims", "1.0.0");
