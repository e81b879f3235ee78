// The kernels of signsgd_step for the CPU. Results do not depend on the number of threads.
#include <galley/cpp/steps.hpp>

#include "rule.hpp"

namespace {

const bool registered = galley::sdk::add_step_kernels<SignumRule>("signsgd_step");

}  // namespace

GALLEY_PLUGIN("signsgd", "1.0.0");
