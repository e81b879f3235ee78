#include "galley/cuda/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::cuda;
using galley::lion::Rule;

const bool registered = add_step_kernels<Rule>("lion_step");

}  // namespace

GALLEY_PLUGIN("lion", "1.0.0");
