// Checks gradient rules by finite differences: a rule of a lone node has to be the derivative of its op's reference in double precision.
// The nodes that the rule appends are evaluated by their references too, so that the check is of rules, not of kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "host/graph/graph.hpp"
#include "host/proofs/numbers.hpp"

namespace galley {

/// A node that is in no graph. The gradient rule sees floating inputs as F32, as when the host differentiates.
struct LoneNode {
  const galley_op* op = nullptr;
  std::string name;
  AttrList attrs;
  uint64_t flags = 0;
  int64_t first_row = 0, length = 0, block = -1;
  std::vector<std::optional<Numbers>> inputs;  ///< nothing for an absent one

  /// Makes the node of an op's test case, with inputs drawn from its ranges and rounded to their dtypes.
  static Result<LoneNode> of(const galley_op* op, const galley_op_case& example, std::mt19937_64& random);
};
using Values = std::vector<std::optional<Numbers>>;

/// Returns what the op's reference makes of the inputs, in the dtypes of its shape rule: outputs, and inputs that it updates.
Result<Made> made_by(const LoneNode& node, const OpLookup& ops);
Result<Values> outputs_of(const LoneNode& node, const OpLookup& ops);

/// What is given to a rule for the gradient of an input.
enum class Given : uint8_t { Nothing, ToWrite, ToAddTo };
/// Returns the gradients of those inputs that need one. `cotangents` are the gradients of the outputs; a loss has none and takes `seed`.
/// What was given to be added to is subtracted again.
Result<Values> gradients_by_rule(const LoneNode& node, const Values& outputs, const Values& cotangents, double seed,
                                 const std::vector<uint8_t>& need, Given given, const OpLookup& ops, std::mt19937_64& random);

/// Says how much of a rule is tried.
enum class Depth : uint8_t {
  Once,         ///< all inputs at once, along one direction each
  EveryChoice,  ///< each choice of inputs that need a gradient, written to new tensors, to given ones and added to ones; and by elements
};

struct GradientFault {
  std::string input;     ///< "input 1 ('weight')"; "": the rule fails as a whole
  double share = 0;      ///< how far the rule is off, as a share of what finite differences say
  std::string sentence;  ///< what was found
};
struct GradientCheck {
  std::vector<GradientFault> faults;  ///< the first for each input
  std::vector<std::string> inputs;    ///< the names of inputs that were checked
  std::string unchecked;              ///< why nothing was checked; "": it was
};

/// Compares a node's gradient rule with central differences of the reference. If the reference has an edge within the step (a largest
/// number, an absolute value), a shorter step has to agree. `random` draws the directions. An error means that the host failed.
Result<GradientCheck> check_gradient(const LoneNode& node, Depth depth, const OpLookup& ops, std::mt19937_64& random);

}  // namespace galley
