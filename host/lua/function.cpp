#include "host/lua/function.hpp"

#include <utility>

namespace galley {

LuaFunction::LuaFunction(Sandbox& sandbox, std::string name)
    : sandbox_(&sandbox), key_(luaL_ref(sandbox.state(), LUA_REGISTRYINDEX)), name_(std::move(name)) {}

Result<Value> LuaFunction::call(std::span<const Value> arguments, Nils nils) const {
  struct Context {
    const LuaFunction& function;
    std::span<const Value> arguments;
    Nils nils;
    Value result;
  } context{*this, arguments, nils, {}};
  sandbox_->renew();
  Status status = sandbox_->protect(
      [](lua_State* L) {
        auto& c = *static_cast<Context*>(lua_touserdata(L, 1));
        luaL_checkstack(L, static_cast<int>(c.arguments.size()) + 4, "too many arguments");
        lua_rawgeti(L, LUA_REGISTRYINDEX, c.function.key_);
        if (!lua_isfunction(L, -1)) raise(L, recipe_error(c.function.name_ + " is " + luaL_typename(L, -1) + " and no function"));
        for (const Value& argument : c.arguments) push_value(L, argument, c.nils);
        lua_call(L, static_cast<int>(c.arguments.size()), 1);
        c.result = Converter(L, {}, c.function.sandbox_->limits().bytes).read(-1, "what " + c.function.name_ + " returned");
        return 0;
      },
      &context);
  if (!status) return std::move(status).error();
  return std::move(context.result);
}

}  // namespace galley
