// Raises errors in Lua, with the place of the script's line that is being executed.
#pragma once

#include <string>
#include <string_view>

#include <lua.hpp>

#include "host/base/result.hpp"

namespace galley {

/// Raises the error in Lua: its cause after the place of the Lua code that called, and its hint.
[[noreturn]] void raise(lua_State* L, const Error& error);
/// Raises `message` as it is; it carries its own place.
[[noreturn]] void raise_text(lua_State* L, const std::string& message);
/// Returns the innermost line of a file that is being executed, and the file as it was named to run_file(), not shortened. 0 if there is
/// none.
int current_line(lua_State* L, std::string* file);
/// Returns whether a message begins with "file:line: ". An error that a script raises with level 0 does not.
bool has_place(std::string_view message);

/// Finds the innermost frame that executes a line of a file; of a text given to load() when there is no file near. Returns the line, 0 if
/// there is none. Asks Lua for no memory.
int find_line(lua_State* L, lua_Debug* frame);
/// Returns the name of the frame's file.
std::string file_of(const lua_Debug& frame);

}  // namespace galley
