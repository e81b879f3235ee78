// Makes the globals of a script in a Sandbox: Lua's own libraries, with limits.
#pragma once

#include <lua.hpp>

namespace galley {

/// Fills the globals of a new state: a lua_CFunction, for Sandbox::protect. Raises only when there is no memory.
int open_libraries(lua_State* L);

}  // namespace galley
