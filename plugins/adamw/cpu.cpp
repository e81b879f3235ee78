#include "galley/cpp/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::sdk;
using galley::adamw::Rule;

const bool registered =
    add(step_kernel<Rule>("adamw_step.cpu", "adamw_step")) && add(step_copy_kernel<Rule>("adamw_step_copy.cpu", "adamw_step>copy"));

}  // namespace

GALLEY_PLUGIN("adamw", "1.0.0");
