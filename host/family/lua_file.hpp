// Runs a family's Lua file in a sandbox of its own, and reads the table that it returns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/family/family.hpp"
#include "host/lua/sandbox.hpp"

namespace galley {

struct Family {
  std::unique_ptr<Sandbox> lua;  ///< holds the family's table
  std::vector<std::string> model_types;
};

/// Returns the files of all families, in the order of their names.
Result<std::vector<std::filesystem::path>> family_files(const FamilyFolders& folders);
Result<Family> open_family(const std::filesystem::path& file, const FamilyFolders& folders);

/// Returns a field of the family's table, or of the library that all families share, as data; functions in it are left out.
Result<Value> family_field(Sandbox& lua, const char* key, const char* module = nullptr);
/// Pushes the family's table, for C functions that Lua calls.
void push_family(lua_State* L);

/// Returns the texts in a list; none if it is no list.
std::vector<std::string> texts_in(const Value& value);

}  // namespace galley
