#include "galley/cpp/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::sdk;
using galley::lion::Rule;

const bool registered =
    add(step_kernel<Rule>("lion_step.cpu", "lion_step")) && add(step_copy_kernel<Rule>("lion_step_copy.cpu", "lion_step>copy"));

}  // namespace

GALLEY_PLUGIN("lion", "1.0.0");
