#include "galley/cpp/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::sdk;
using galley::adamw::Rule;

const bool registered = add_step_kernels<Rule>("adamw_step");

}  // namespace

GALLEY_PLUGIN("adamw", "1.0.0");
