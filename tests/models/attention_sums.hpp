// What the sums of attention and of its gradient are made of.
#pragma once

#include <vector>

#include "tests/models/harness.hpp"

namespace galley::test {

/// For each number of each output, the sum of its terms' sizes: of p·|v| for o, of |dx|·|k| for dq, and so on. A kernel on tensor cores
/// rounds one factor of each term, a probability or the gradient of a score, to 16 bits, and so loses that share of this sum at most,
/// however much of it is cancelled. Zeros for outputs whose terms are not rounded (lse, dbias). `problem` is a node of either op.
std::vector<std::vector<double>> attention_sums(const Problem& problem);

}  // namespace galley::test
