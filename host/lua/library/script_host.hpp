// What the libraries of a script ask of the sandbox that runs it (host/lua/sandbox.hpp).
#pragma once

#include <string>

#include <lua.hpp>

namespace galley {

class ScriptHost {
 public:
  virtual ~ScriptHost() = default;
  /// Returns the host of a state, whose extra space holds its address.
  static ScriptHost& of(lua_State* L) { return **static_cast<ScriptHost**>(lua_getextraspace(L)); }
  /// Raises when a limit has been passed. A binding calls it in every loop whose length a script decides.
  virtual void check(lua_State* L) = 0;
  /// Pushes what the module returned; runs it when it has not run yet.
  virtual void require(lua_State* L, const std::string& module) = 0;
};

}  // namespace galley
