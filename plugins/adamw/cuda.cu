#include "galley/cuda/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::cuda;
using galley::adamw::Rule;

const bool registered =
    add(step_kernel<Rule>("adamw_step.cuda", "adamw_step")) && add(step_copy_kernel<Rule>("adamw_step_copy.cuda", "adamw_step>copy"));

}  // namespace

GALLEY_PLUGIN("adamw", "1.0.0");
