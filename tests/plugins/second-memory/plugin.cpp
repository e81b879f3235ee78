// Claims PLACEMENT by name.
#include <algorithm>

#include "galley/cpp/glob.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class SecondMemory {
 public:
  explicit SecondMemory(const Options& options)
      : memory_(options.string("memory")),
        parameters_(options.strings("parameters")),
        gradients_(options.strings("gradients")),
        states_(options.strings("states")) {}

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_PLACEMENT)) return;
    for (const Claim& tensor : claims) {
      const auto& all = patterns(tensor.kind);
      if (std::any_of(all.begin(), all.end(), [&](const std::string& pattern) { return glob_match(pattern, tensor.name); }))
        tensor.strong(0, memory_.c_str());
    }
  }

 private:
  const std::vector<std::string>& patterns(uint32_t kind) const {
    static const std::vector<std::string> none;
    return kind == GALLEY_SUBJECT_PARAMETER  ? parameters_
           : kind == GALLEY_SUBJECT_GRADIENT ? gradients_
           : kind == GALLEY_SUBJECT_STATE    ? states_
                                             : none;
  }
  std::string memory_;
  std::vector<std::string> parameters_, gradients_, states_;
};

const bool registered = add(strategy<SecondMemory>("second-memory"));

}  // namespace

GALLEY_PLUGIN("second-memory", "1.0.0");
