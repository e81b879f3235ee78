// Gradient rules beside finite differences: a node by itself, with numbers, whose op's reference in double precision is what its rule has
// to be the derivative of. The nodes that the rule appends are evaluated by their references too, so that a rule is held and no kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "host/graph/graph.hpp"
#include "host/proofs/numbers.hpp"

namespace galley {

/// A node that stands in no graph. Floating inputs are F32 to the gradient rule, as all are when the host differentiates.
struct LoneNode {
  const galley_op* op = nullptr;
  std::string name;
  AttrList attrs;
  uint64_t flags = 0;
  int64_t first_row = 0, length = 0, block = -1;
  std::vector<std::optional<Numbers>> inputs;  ///< none: absent

  /// One of the op's test cases, with inputs drawn from its ranges, each the nearest number that its dtype has.
  static Result<LoneNode> of(const galley_op* op, const galley_op_case& example, std::mt19937_64& random);
};
using Values = std::vector<std::optional<Numbers>>;

/// What the op's reference makes of the inputs, in the dtypes that its shape rule says.
Result<Values> outputs_of(const LoneNode& node, const OpLookup& ops);

/// What is given to a rule for the gradient of an input.
enum class Given : uint8_t { Nothing, ToWrite, ToAddTo };
/// The gradients of those inputs that need one: `cotangents` are the gradients of the outputs, empty for a loss, which takes `seed` in
/// their place. What was given to be added to is taken off again.
Result<Values> gradients_by_rule(const LoneNode& node, const Values& outputs, const Values& cotangents, double seed,
                                 const std::vector<uint8_t>& need, Given given, const OpLookup& ops, std::mt19937_64& random);

/// How much of a rule is tried.
enum class Depth : uint8_t {
  Once,         ///< all inputs at once, along one direction each
  EveryChoice,  ///< each choice of inputs that need a gradient, written to new tensors, to given ones and added to ones; and by elements
};

struct GradientFault {
  std::string input;     ///< "input 1 ('weight')"; "": the rule fails as a whole
  double share = 0;      ///< how far the rule is off, as a share of what finite differences say
  std::string sentence;  ///< what was seen
};
struct GradientCheck {
  std::vector<GradientFault> faults;  ///< the first for each input
  std::vector<std::string> inputs;    ///< the names of those that were held
  std::string unchecked;              ///< why nothing was held; "": it was
};

/// Holds a node's gradient rule against central differences of the reference. Where these have an edge within the step (a largest number,
/// an absolute value), a shorter step has to agree; which numbers are drawn along is by `random`. An error is one of the host.
Result<GradientCheck> check_gradient(const LoneNode& node, Depth depth, const OpLookup& ops, std::mt19937_64& random);

}  // namespace galley
