#include "host/family/lua_file.hpp"

#include <algorithm>

#include "host/lua/convert.hpp"

namespace galley {
namespace {

constexpr char kFamily = 0;

}  // namespace

void push_family(lua_State* L) { lua_rawgetp(L, LUA_REGISTRYINDEX, &kFamily); }

std::vector<std::string> texts_in(const Value& value) {
  std::vector<std::string> out;
  if (const auto* list = value.as<List>())
    for (const Value& v : *list)
      if (const auto* s = v.as<std::string>()) out.push_back(*s);
  return out;
}

Result<Value> family_field(Sandbox& lua, const char* key, const char* module) {
  struct Ask {
    const char *key, *module;
    Value value;
  } ask = {key, module, {}};
  TRY_STATUS(lua.protect(
      [](lua_State* L) -> int {
        auto* a = static_cast<Ask*>(lua_touserdata(L, 1));
        if (a->module) Sandbox::of(L).require(L, a->module);
        else push_family(L);
        lua_getfield(L, -1, a->key);
        a->value = to_value(L, -1);
        return 0;
      },
      &ask));
  return ask.value;
}

Result<Family> open_family(const std::filesystem::path& file, const FamilyFolders& folders) {
  Family family;
  // A second is what it takes a slow processor to describe as many tensors and nodes as a model may have: their number is to end it first.
  family.lua = TRY(Sandbox::create({.seconds = 5}, {folders.library}));
  lua_State* L = family.lua->state();
  lua_pushcfunction(L, [](lua_State* S) -> int {
    lua_rawsetp(S, LUA_REGISTRYINDEX, &kFamily);
    return 0;
  });
  TRY_STATUS(family.lua->run_file(file, file.filename().string(), 1));
  if (!lua_istable(L, -1))
    return recipe_error(file.filename().string() + ": a family returns a table { model_types, architecture, harmless, build }");
  TRY_STATUS(family.lua->call(1, 0));
  family.model_types = texts_in(TRY(family_field(*family.lua, "model_types")));
  return family;
}

Result<std::vector<std::filesystem::path>> family_files(const FamilyFolders& folders) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folders.families, error))
    if (entry.path().extension() == ".lua") files.push_back(entry.path());
  if (error) return run_error("cannot read the families in " + folders.families.string() + ": " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace galley
