// Calls a function of a script with plain data, again and again.
#pragma once

#include <cstddef>
#include <span>

#include "host/base/result.hpp"
#include "host/base/value.hpp"
#include "host/lua/convert.hpp"
#include "host/lua/sandbox.hpp"

namespace galley {

/// Refers to the sandbox, which outlives it. Used by one thread at a time.
class LuaFunction {
 public:
  /// Takes the function on top of the sandbox's stack off. `name` is how messages call it.
  LuaFunction(Sandbox& sandbox, std::string name);
  /// Takes the function with this key in Lua's registry.
  LuaFunction(Sandbox& sandbox, int key, std::string name) : sandbox_(&sandbox), key_(key), name_(std::move(name)) {}

  /// Calls the function and returns its one result, as data. The script's time counts anew for each call.
  Result<Value> call(std::span<const Value> arguments, Nils nils = Nils::Absent) const;

 private:
  Sandbox* sandbox_;
  int key_;
  std::string name_;
};

}  // namespace galley
