// Checks what the strategies of a recipe declare by what they do: runs the recipe beside the same one with a strategy off or replaced, two
// updates each, and once under the ops' references. Arms run one after another in this process, so that the memory is the largest one's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "host/proofs/reference.hpp"
#include "host/session/study.hpp"

namespace galley {

/// Updates of an arm, and windows whose gradients an approximate strategy is judged by; fewer where the recipe has fewer steps.
inline constexpr int64_t kCertifySteps = 2, kCertifyWindows = 3;

struct CertifyOptions {
  StudyOptions study;
  std::filesystem::path directory;  ///< where arms write what is compared; there, and empty
  bool keep = false;                ///< what they have written; else an arm's folder goes once it has been compared
  /// The run under the ops' references, which takes minutes with a model of hundreds of millions of parameters.
  enum class References : uint8_t {
    No,
    Small,
    Yes
  } references = References::Small;                   ///< Small: in a larger model, what strategies do alone
  std::function<bool()> stop = [] { return false; };  ///< asked between runs; true: exit code Interrupted
  /// Before each run of an arm: how many runs are done, of how many.
  std::function<void(int64_t done, int64_t all, const std::string& what)> begins = {};
};

/// The relative difference that came nearest to its bound; none: not compared.
struct SeenDifference {
  std::optional<double> largest;
  std::string tensor;             ///< of which tensor; of gradients of an approximate strategy, which one differs most
  std::optional<double> control;  ///< the same of the control; none: it has none
  std::optional<double> bound;    ///< up to which it holds; none: it is only shown
};

struct Certificate {
  enum class Verdict : uint8_t { Holds, Breach, NotHeld };
  std::string strategy, place, plugin;
  Exactness declared = Exactness::Bits;
  std::string against;  ///< "without", "batch x 4", "gradients", "start", another strategy's name, or "references"
  Verdict verdict = Verdict::NotHeld;
  SeenDifference loss;       ///< |a − b| / |b|
  SeenDifference gradients;  ///< ‖a − b‖ / ‖b‖, of a tensor in the first window; of an approximate strategy the middle one
  SeenDifference updates;    ///< ‖a − b‖ / ‖b − o‖ of weights after the last update, o those before the first
  bool follows = false;      ///< gradients differ: updates, which magnify that, then say little
  std::string sentence;      ///< what was seen; why it is not held
};
const char* verdict_name(Certificate::Verdict verdict);

struct Certified {
  std::vector<Certificate> strategies;  ///< in the recipe's order
  int64_t steps = 0;
  /// The recipe once more, at other addresses and with so many threads: the first instruction that leaves other bytes. "": none does.
  std::string unsteady;
  int64_t other_threads = 0;
  ReferenceReport reference;
  std::string reference_note;  ///< where there was no such run to its end: why
  /// What the references find in the work of no strategy: the model's own, or the host's. "": nothing.
  std::string fault;
};

/// What is wrong with the recipe itself is an error; an arm that cannot work without a strategy is said in its certificate. [main-thread]
Result<Certified> certify(const std::filesystem::path& recipe, const CertifyOptions& options);

/// A table of 80 columns at most, and a sentence for each strategy that does not hold or is not held; breaches in `red` … `plain`.
std::string certify_table(const Certified& certified, const char* red = "", const char* plain = "");
std::string certify_json(const Certified& certified);

}  // namespace galley
