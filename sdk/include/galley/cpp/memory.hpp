// Memory classes of a target, for strategies that place tensors elsewhere. Header-only.
#pragma once

#include <cstdint>
#include <string>

#include "galley/cpp/node.hpp"

namespace galley::sdk {

/// The index of a memory class beside the one from which kernels compute, class 0. `name` "": the first that there is. Throws where there
/// is none, or none of this name. `what`: what is to lie there, "the states of the optimizer".
inline uint32_t other_memory(const galley_target& target, const std::string& name, const std::string& what) {
  const std::string device = std::string("device '") + target.device + "'";
  std::string others;
  for (uint32_t i = 1; i < target.n_memories; ++i) {
    const char* const other = target.memories[i]->name;
    if (name.empty() || name == other) return i;
    others += (others.empty() ? "'" : ", '") + std::string(other) + "'";
  }
  const std::string first = target.n_memories ? std::string("'") + target.memories[0]->name + "'" : "none";
  if (others.empty())
    invalid(device + " has one memory class, " + first + ": there is no other memory for " + what,
            "take it out of the recipe, or plan for a GPU: --target rtx4090");
  if (name == target.memories[0]->name)
    invalid(device + " computes from the memory class " + first + ", so it is no other memory for " + what, "there is: " + others);
  invalid(device + " has no memory class '" + name + "' for " + what, "there is: " + others);
}

}  // namespace galley::sdk
