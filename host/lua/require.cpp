// require "a.b": a file of Lua, run once.
#include <algorithm>

#include "host/base/below.hpp"
#include "host/lua/sandbox.hpp"

namespace galley {
namespace {

/// Key of the registry: real path → what the module returned, or false while it runs.
const char kModules = 0;

/// The file that a module's name means, below a root or absolute; "" for what is no name.
std::string file_of(const std::string& module) {
  if (module.empty() || module.size() > 1000 || module.find('\0') != std::string::npos) return {};
  if (module.find('/') != std::string::npos) return module.ends_with(".lua") ? module : module + ".lua";
  std::string path;
  for (const char c : module) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!letter && (c != '.' || path.empty() || path.ends_with('/'))) return {};
    path += c == '.' ? '/' : c;
  }
  return path.ends_with('/') ? std::string() : path + ".lua";
}

}  // namespace

bool Sandbox::allowed(const std::filesystem::path& real) const {
  return reach_ == Reach::Anywhere || std::any_of(roots_.begin(), roots_.end(), [&](const std::filesystem::path& root) {
           std::error_code code;
           const std::filesystem::path folder = std::filesystem::canonical(root, code);
           return !code && is_below(real, folder);
         });
}

Result<LuaSource> Sandbox::find_module(const std::string& module) const {
  const std::string file = file_of(module);
  if (file.empty()) {
    return recipe_error("require: '" + module.substr(0, 200) + "' is not the name of a module",
                        "such as \"common\" or \"lib.common\", for common.lua and lib/common.lua, or a path such as \"../common\"");
  }
  const auto provided = std::find_if(provided_.begin(), provided_.end(), [&](const LuaSource& m) { return m.module == file; });
  if (provided != provided_.end()) return *provided;
  std::string looked;
  for (const std::filesystem::path& root : roots_) {
    const std::filesystem::path path = (root / file).lexically_normal();
    if (!looked.empty() && path.is_absolute() && file.front() == '/') break;  // the same for every root
    looked += (looked.empty() ? "" : ", ") + path.string();
    std::error_code code;
    const std::filesystem::path real = std::filesystem::canonical(path, code);
    if (code) continue;
    const auto leads_out = [&](const std::filesystem::path& to) {
      return recipe_error("require: " + path.string() + " leads out of the folders for modules, to " + to.string());
    };
    if (!allowed(real)) return leads_out(real);
    LuaSource source = TRY(read_source(real, path.string()));
    if (!allowed(source.path)) return leads_out(source.path);  // somebody has put a link there meanwhile
    source.module = file;
    return source;
  }
  return recipe_error("require: there is no module '" + module + "'", "looked for " + looked);
}

void Sandbox::require(lua_State* L, const std::string& module) {
  Result<LuaSource> source = find_module(module);
  if (!source) raise(L, source.error());
  const std::string key = source->path.string();
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &kModules) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &kModules);
  }
  lua_pushlstring(L, key.data(), key.size());
  const int type = lua_rawget(L, -2);
  if (type == LUA_TBOOLEAN && !lua_toboolean(L, -1)) raise(L, recipe_error("require: module '" + module + "' requires itself"));
  if (type == LUA_TNIL) {
    lua_pop(L, 1);
    lua_pushlstring(L, key.data(), key.size());
    lua_pushvalue(L, -1);
    lua_pushboolean(L, 0);
    lua_rawset(L, -4);
    sources_.push_back(*source);
    load(L, source->text, source->name);
    lua_pushlstring(L, module.data(), module.size());
    if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
      check(L);
      lua_pushvalue(L, -2);
      lua_pushnil(L);
      lua_rawset(L, -5);  // whoever catches the error may try again
      lua_error(L);
    }
    if (lua_isnil(L, -1) || (lua_isboolean(L, -1) && !lua_toboolean(L, -1))) {
      lua_pop(L, 1);
      lua_pushboolean(L, 1);
    }
    lua_pushvalue(L, -1);
    lua_insert(L, -3);
    lua_rawset(L, -4);  // modules[key] = what it returned
  }
  lua_remove(L, -2);
}

}  // namespace galley
