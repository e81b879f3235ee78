// The kernel of signsgd_step for the CPU. Results do not depend on the number of threads.
#include <galley/cpp/steps.hpp>

#include "rule.hpp"

namespace {

const bool registered = galley::sdk::add(galley::sdk::step_kernel<SignumRule>("signsgd_step.cpu", "signsgd_step"));

}  // namespace

GALLEY_PLUGIN("signsgd", "1.0.0");
