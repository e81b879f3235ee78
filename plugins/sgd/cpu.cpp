#include "galley/cpp/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::sdk;
using galley::sgd::Rule;

const bool registered = add_step_kernels<Rule>("sgd_step");

}  // namespace

GALLEY_PLUGIN("sgd", "1.0.0");
