// Replaces Lua's find, match, gmatch and gsub by functions with the same results, errors and limits that look at the clock: Lua's own try a
// pattern that backtracks (("a*"):rep(20) .. "b") for longer than the universe is old, and nothing can stop them.
#pragma once

#include <lua.hpp>

namespace galley {

/// Puts the four functions into the table on top of the stack.
void open_patterns(lua_State* L);

}  // namespace galley
