// A family's Lua file, run in a sandbox of its own, and what the table that it returns says.
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

/// The files of all families, in order of their names.
Result<std::vector<std::filesystem::path>> family_files(const FamilyFolders& folders);
Result<Family> open_family(const std::filesystem::path& file, const FamilyFolders& folders);

/// A field of the family's table as data, or of the library that all families share; functions in it are not asked for.
Result<Value> family_field(Sandbox& lua, const char* key, const char* module = nullptr);
/// Pushes the family's table. For C functions that Lua calls.
void push_family(lua_State* L);

/// The texts in a list; none where it is no list.
std::vector<std::string> texts_in(const Value& value);

}  // namespace galley
