// For tests: wants what the host may not be able to do.
#include <cstdlib>
#include <string>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class Claims {
 public:
  explicit Claims(const Options& options)
      : facet_(options.string("facet")), value_(options.string("value")), strong_(options.boolean("strong", false)) {}

  void claim(const GraphReader&, const galley_subject& subject, Claim& out) const {
    if (facet_ == "compute" && subject.facet == GALLEY_FACET_COMPUTE) {
      if (strong_) out.strong(0, value_.c_str());
      else out.weak(0, value_.c_str());
    }
    if (facet_ == "shard" && subject.facet == GALLEY_FACET_SHARD) out.weak(std::atoll(value_.c_str()));
    if (facet_ == "gradient" && value_ == "immediate" && subject.facet == GALLEY_FACET_GRADIENT_LIFETIME)
      out.weak(GALLEY_GRADIENT_IMMEDIATE);
    if (facet_ == "gradient" && value_ != "immediate" && subject.facet == GALLEY_FACET_GRADIENT_DTYPE) out.weak(0, value_.c_str());
  }

 private:
  std::string facet_, value_;
  bool strong_;
};

const bool registered = add(strategy<Claims>("claims"));

}  // namespace

GALLEY_PLUGIN("claims", "1.0.0");
