#include "galley/cpp/steps.hpp"
#include "rule.hpp"

namespace {

using namespace galley::sdk;
using galley::ema::Rule;

const bool registered = add_step_kernels<Rule>("ema_step");

}  // namespace

GALLEY_PLUGIN("ema", "1.0.0");
