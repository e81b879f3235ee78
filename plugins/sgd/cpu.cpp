#include "galley/cpp/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::sdk;
using galley::sgd::Rule;

const bool registered =
    add(step_kernel<Rule>("sgd_step.cpu", "sgd_step")) && add(step_copy_kernel<Rule>("sgd_step_copy.cpu", "sgd_step>copy"));

}  // namespace

GALLEY_PLUGIN("sgd", "1.0.0");
