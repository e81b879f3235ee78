// Makes the checks that every program passes while it is made: verifiers after each pass, and the proof of a plan.
#pragma once

#include "host/passes/compile_options.hpp"

namespace galley {

/// Returns the checks of StudyOptions: after each pass verify_graph (verify.hpp) or check_program (check.hpp), and once operands are there
/// verify_operands; check_plan (shadow.hpp) proves a plan.
Checks checks();

/// Does what Checks::pass does.
Status check_pass(Compilation& c, const PassInfo& pass);

}  // namespace galley
