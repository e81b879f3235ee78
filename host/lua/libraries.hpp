// What a script in a Sandbox finds in its globals.
#pragma once

#include <lua.hpp>

namespace galley {

/// Fills the globals of a new state: a lua_CFunction, for Sandbox::protect. Raises only when there is no memory.
int open_libraries(lua_State* L);

}  // namespace galley
