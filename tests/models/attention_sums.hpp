// What the sums of attention and of its gradient are made of.
#pragma once

#include <string_view>
#include <vector>

#include "tests/models/harness.hpp"

namespace galley::test {

/// Kernels of attention that multiply in 16 bits: they round probabilities and the gradients of scores before they are summed up.
bool rounds_probabilities(std::string_view kernel);

/// For each number of each output, the sum of its terms' sizes: of p·|v| for o, of |dx|·|k| for dq, and so on. Such a kernel
/// rounds one factor of each term, a probability or the gradient of a score, to 16 bits, and so loses that share of this sum at most,
/// however much of it is cancelled. Zeros for outputs whose terms are not rounded (lse, dbias). `problem` is a node of attention, with a
/// cache or without, or of its gradient.
std::vector<std::vector<double>> attention_sums(const Problem& problem);

}  // namespace galley::test
