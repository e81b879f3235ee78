#include "galley/cuda/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::cuda;
using galley::sgd::Rule;

const bool registered =
    add(step_kernel<Rule>("sgd_step.cuda", "sgd_step")) && add(step_copy_kernel<Rule>("sgd_step_copy.cuda", "sgd_step>copy"));

}  // namespace

GALLEY_PLUGIN("sgd", "1.0.0");
