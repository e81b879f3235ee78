#include "host/proofs/checks.hpp"

#include <string_view>

#include "host/proofs/check.hpp"
#include "host/proofs/divided.hpp"
#include "host/proofs/shadow.hpp"
#include "host/proofs/verify.hpp"
#include "host/proofs/verify_operands.hpp"

namespace galley {

Status check_pass(Compilation& c, const PassInfo& pass) {
  if (pass.leaves == Leaves::Graph || pass.leaves == Leaves::Orders) {
    TRY_STATUS(verify_graph(c, pass.name));
    return pass.name == std::string_view("shard") ? check_divided(c) : ok();  // the whole graph is there
  }
  if (Status checked = check_program(c.program, c.target); !checked) {
    Error error = std::move(checked).error();
    error.cause = "after pass '" + std::string(pass.name) + "': " + error.cause;
    return error;
  }
  // Later passes move operands, but change none.
  return pass.leaves == Leaves::Operands ? verify_operands(c, pass.name) : ok();
}

Checks checks() { return {check_pass, check_plan}; }

}  // namespace galley
