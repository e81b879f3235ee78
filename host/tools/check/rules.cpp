#include "host/tools/check/rules.hpp"

#include <utility>

namespace galley::rules {

const char* broken_by(const std::string& cause) {
  const std::pair<const char*, const char*> known[] = {{"a thread of its own", kAfter},
                                                       {"in reading its tables", kTables},
                                                       {"does not read GALLEY_SCALAR_APPLY", kApply},
                                                       {"changes in a step which is to be skipped", kApply},
                                                       {"gradient rule", kGradient},
                                                       {"promise", kPromise},
                                                       {"the reference", kKernel},
                                                       {"leaves other bytes", kBytes},
                                                       {"rounding otherwise", kAsFound},
                                                       {"forked", kAsFound},
                                                       {"the current folder", kAsFound},
                                                       {"the locale", kAsFound},
                                                       {"signals blocked", kAsFound},
                                                       {"the standard ", kAsFound},
                                                       {"blocks of work", kBlocks},
                                                       {"work among threads without", kBlocks},
                                                       {"logs no text", kLog},
                                                       {"is there twice", kAttributes},
                                                       {"has no attribute", kDeclared},
                                                       {"in enqueue", kWork},
                                                       {"in prepare", kPrepare},
                                                       {"junk", kWork}};
  for (const auto& [word, rule] : known)
    if (cause.find(word) != std::string::npos) return rule;
  return kStatus;
}

}  // namespace galley::rules
