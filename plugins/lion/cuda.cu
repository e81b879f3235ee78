#include "galley/cuda/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::cuda;
using galley::lion::Rule;

const bool registered =
    add(step_kernel<Rule>("lion_step.cuda", "lion_step")) && add(step_copy_kernel<Rule>("lion_step_copy.cuda", "lion_step>copy"));

}  // namespace

GALLEY_PLUGIN("lion", "1.0.0");
