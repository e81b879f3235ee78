// What a script finds, what it does not find, and how its errors look.
#include <sys/stat.h>

#include <filesystem>

#include "tests/lua/helper.hpp"

namespace galley {
namespace {

std::string error_of(const std::string& text) {
  const std::string answer = run(text);
  EXPECT_EQ(answer.rfind("error: ", 0), 0u) << answer;
  return answer.substr(answer.find(' ') + 1);
}

TEST(Globals, AreTheseAndNoOthers) {
  EXPECT_EQ(run("local t = {} for k in pairs(_G) do t[#t + 1] = k end return table.concat(t, ' ')"),
            "_G assert error getmetatable ipairs math next pairs pcall rawequal rawget rawlen rawset require select setmetatable "
            "string table tonumber tostring type");
  EXPECT_EQ(run("local t = {} for k in pairs(string) do t[#t + 1] = k end return table.concat(t, ' ')"),
            "byte char find format gmatch gsub len lower match pack packsize rep reverse sub unpack upper");
  EXPECT_EQ(run("local t = {} for k in pairs(table) do t[#t + 1] = k end return table.concat(t, ' ')"),
            "concat insert move pack remove sort unpack");
  EXPECT_EQ(run("return tostring(math.random) .. tostring(math.randomseed) .. math.sqrt(4)"), "nilnil2.0");
}

TEST(Globals, NotThere) {
  for (const char* name :
       {"io", "os", "debug", "package", "coroutine", "utf8", "dofile", "loadfile", "collectgarbage", "print", "warn", "load", "xpcall"}) {
    EXPECT_EQ(error_of(std::string("return ") + name), "t.lua:1: '" + std::string(name) + "' is not available here");
  }
}

TEST(Globals, UndefinedNamesAreErrors) {
  EXPECT_EQ(error_of("\nlocal x = tonumbr('1')"), "t.lua:2: 'tonumbr' is not defined; did you mean 'tonumber'?");
  EXPECT_EQ(error_of("return zzzzzzzz"), "t.lua:1: 'zzzzzzzz' is not defined");
  EXPECT_EQ(run("x = 1 return x"), "1");
  EXPECT_EQ(run("return rawget(_G, 'x') == nil"), "true");
  EXPECT_EQ(error_of("setmetatable(_G, {})"), "t.lua:1: cannot change a protected metatable");
  EXPECT_EQ(run("return getmetatable(_G)"), "false");
  EXPECT_EQ(run("return getmetatable('')"), "false");
}

TEST(Errors, HaveAPlaceAndOneLine) {
  EXPECT_EQ(error_of("\n\nerror('no')"), "t.lua:3: no");
  EXPECT_EQ(error_of("local x = nil .. 'a'"), "t.lua:1: attempt to concatenate a nil value");
  EXPECT_EQ(error_of("return {"), "t.lua:1: unexpected symbol near <eof>");
  EXPECT_EQ(error_of("\nerror()"), "t.lua:2: error() was called with nil and not a text");
  EXPECT_EQ(error_of("\nerror({})"), "t.lua:2: error() was called with a table and not a text");
  EXPECT_EQ(error_of("error('whole', 0)"), "whole");
  EXPECT_EQ(error_of("local f = string.format\nlocal s = f('%d', 'x')"),
            "t.lua:2: bad argument #2 to 'string.format' (number expected, got string)");
  const auto box = sandbox();
  const Status status = box->run_text("error('one\\ntwo\\nthree')", "t.lua");
  EXPECT_EQ(status.error().cause, "t.lua:1: one");
  EXPECT_EQ(status.error().hint, "two\nthree");
  EXPECT_EQ(status.error().exit, Exit::Recipe);
  EXPECT_EQ(lua_gettop(box->state()), 0);
}

TEST(Errors, StateStaysUsable) {
  const auto box = sandbox();
  EXPECT_EQ(run(*box, "error('no')"), "error: t.lua:1: no");
  EXPECT_EQ(run(*box, "return 1 + 1"), "2");
  EXPECT_FALSE(box->exceeded());
}

TEST(Errors, AreCaughtAsInLua) {
  EXPECT_EQ(run("local ok, e = pcall(error, 'x', 0) return tostring(ok) .. e"), "falsex");
  EXPECT_EQ(run("return select('#', pcall(function(...) return ... end, 1, nil, 3))"), "4");
  EXPECT_EQ(run("return tostring(pcall(pcall))"), "false");
}

TEST(Purity, NoAddresses) {
  EXPECT_EQ(run("return tostring({}) .. tostring(tostring) .. tostring(function() end)"), "tablefunctionfunction");
  EXPECT_EQ(run("return ('%s %s %q'):format({}, pcall, 'x')"), "table function \"x\"");
  EXPECT_EQ(error_of("return ('%p'):format({})"), "t.lua:1: format: %p is not available here");
  EXPECT_EQ(error_of("return ('%5p%%'):format({})"), "t.lua:1: format: %p is not available here");
  EXPECT_EQ(run("return tostring(setmetatable({}, { __tostring = function() return 'mine' end }))"), "mine");
  EXPECT_EQ(run("return ('%s'):format(setmetatable({}, { __name = 'thing' }))"), "thing");
}

TEST(Purity, TablesAreWalkedInOrder) {
  const std::string walk =
      "local t = { z = 1, [2.5] = 1, b = 1, [true] = 1, a = 1, [1] = 1, [-3] = 1, aa = 1, [10] = 1, [false] = 1, B = 1, [''] = 1 } ";
  EXPECT_EQ(run(walk + "local s = '' for k in pairs(t) do s = s .. tostring(k) .. ' ' end return s"),
            "-3 1 2.5 10  B a aa b z false true ");
  EXPECT_EQ(run(walk + "local s = '' for k in next, t do s = s .. tostring(k) .. ' ' end return s"), "-3 1 2.5 10  B a aa b z false true ");
  EXPECT_EQ(run("return tostring(next({})) .. tostring(next({ a = 1 }, 'a'))"), "nilnil");
  EXPECT_EQ(run("local t = { a = 1, b = 2, c = 3 } local s = '' for k, v in pairs(t) do t.b = nil s = s .. k .. v end return s"), "a1c3");
  EXPECT_EQ(error_of("for k in pairs({ [{}] = 1 }) do end"), "t.lua:1: a table with a table as key has no order and cannot be walked");
  EXPECT_EQ(run("local s = '' for k, v in pairs(setmetatable({}, { __pairs = function() return next, { x = 1 } end })) do s = k .. v end "
                "return s"),
            "x1");
  EXPECT_EQ(run("local s = 0 for i, v in ipairs({ 3, 4, nil, 5 }) do s = s + i * v end return s"), "11");
}

TEST(Metatables, WorkAsInLua) {
  EXPECT_EQ(run(R"(
    local Point = {}
    Point.__index = Point
    Point.__add = function(a, b) return Point.new(a.x + b.x) end
    Point.__eq = function(a, b) return a.x == b.x end
    Point.__call = function(self, n) return self.x * n end
    function Point.new(x) return setmetatable({ x = x }, Point) end
    function Point:twice() return self.x * 2 end
    local p = Point.new(2) + Point.new(3)
    return p:twice() + p(100) + (p == Point.new(5) and 1 or 0) + (getmetatable(p) == Point and 1000 or 0))"),
            "1511");
  EXPECT_EQ(run("local m = {} local t = setmetatable({}, m) m.__index = function() return 1 end return t.x"), "1");
  EXPECT_EQ(run("local m = { __metatable = 'mine' } return getmetatable(setmetatable({}, m))"), "mine");
  EXPECT_EQ(error_of("setmetatable(setmetatable({}, { __metatable = 1 }), {})"), "t.lua:1: cannot change a protected metatable");
  EXPECT_EQ(run("return tostring(getmetatable(setmetatable(setmetatable({}, {}), nil)))"), "nil");
}

TEST(Require, FindsFilesBelowItsRoots) {
  const Folder folder;
  folder.put("common.lua", "#!/usr/bin/lua\nreturn { name = ..., x = 1 }");
  folder.put("lib/deep.lua", "local c = require 'common' c.x = c.x + 1 return c");
  folder.put("nothing.lua", "loaded = (rawget(_G, 'loaded') or 0) + 1");
  const auto box = sandbox({}, {folder.path(), folder.path() / "absent"});
  EXPECT_EQ(run(*box, "return require('common').name .. require('lib.deep').x .. require('lib/deep').x"), "common22");
  EXPECT_EQ(run(*box, "require 'nothing' require 'nothing' return tostring(require 'nothing') .. loaded"), "true1");
  ASSERT_EQ(box->sources().size(), 3u);
  EXPECT_EQ(box->sources()[0].path, folder.path() / "common.lua");
  EXPECT_EQ(box->sources()[1].path, folder.path() / "lib/deep.lua");
}

TEST(Require, Refuses) {
  const Folder folder, outside;
  outside.put("secret.lua", "return 'secret'");
  folder.put("circle.lua", "return require 'circle'");
  folder.put("broken.lua", "\nreturn = 1");
  folder.put("fails.lua", "error('first')");
  folder.put("binary.lua", "\x1bLua");
  folder.put("folder.lua/x", "");
  std::filesystem::create_symlink(outside.path() / "secret.lua", folder.path() / "link.lua");
  std::filesystem::create_symlink(outside.path(), folder.path() / "away");
  const auto box = sandbox({}, {folder.path()});
  const auto cause = [&](const std::string& module) { return run(*box, "return require '" + module + "'"); };
  EXPECT_EQ(cause("absent"), "error: t.lua:1: require: there is no module 'absent'");
  EXPECT_EQ(cause("link"), "error: t.lua:1: require: " + (folder.path() / "link.lua").string() +
                               " leads out of the folders for modules, to " + (outside.path() / "secret.lua").string());
  for (const std::string& module : {std::string("away.secret"), "../" + outside.path().filename().string() + "/secret",
                                    (outside.path() / "secret").string(), (outside.path() / "secret.lua").string()})
    EXPECT_NE(cause(module).find(" leads out of the folders for modules"), std::string::npos) << module;
  for (const char* name : {"..secret", "", "a..b", ".a", "a.", "a b", "a\\0b", "/a\\0b"}) {
    EXPECT_NE(cause(name).find("is not the name of a module"), std::string::npos) << name;
  }
  EXPECT_NE(cause("circle").find("require: module 'circle' requires itself"), std::string::npos);
  EXPECT_NE(cause("broken").find("broken.lua:2: "), std::string::npos);
  EXPECT_NE(cause("binary").find("attempt to load a binary chunk"), std::string::npos);
  EXPECT_NE(cause("folder").find("this is not a file"), std::string::npos);
  EXPECT_NE(run(*box, "pcall(require, 'fails') return require 'fails'").find("fails.lua:1: first"), std::string::npos);
}

TEST(Require, TakesPaths) {
  const Folder folder, outside;
  outside.put("common.lua", "return 'common'");
  outside.put("dotted.name.lua", "return 'dotted'");
  folder.put("lib/deep.lua", "return 'deep'");
  const auto box = sandbox({}, {folder.path() / "none", folder.path()}, Sandbox::Reach::Anywhere);
  const std::string name = outside.path().filename().string();
  for (const std::string& module : {"../" + name + "/common", "../" + name + "/common.lua", (outside.path() / "common").string()})
    EXPECT_EQ(run(*box, "return require '" + module + "'"), "common");
  EXPECT_EQ(run(*box, "return require '../" + name + "/dotted.name'"), "dotted");
  EXPECT_EQ(run(*box, "return require './lib/deep'"), "deep");
  EXPECT_EQ(box->sources().size(), 3u);  // each once, whatever it was called
  EXPECT_EQ(run(*box, "return require '../absent'"), "error: t.lua:1: require: there is no module '../absent'");
}

// A FIFO without a writer: opening it would wait for ever.
TEST(Files, FifosAreNotOpened) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder.path() / "fifo.lua").c_str(), 0600), 0);
  const auto box = sandbox({}, {folder.path()});
  EXPECT_EQ(box->run_file(folder.path() / "fifo.lua", "fifo.lua").error().cause, "fifo.lua: this is not a file");
  EXPECT_NE(run(*box, "return require 'fifo'").find("fifo.lua: this is not a file"), std::string::npos);
}

TEST(Files, Run) {
  const Folder folder;
  const std::string long_name = std::string(80, 'd') + "/recipe.lua";
  const auto file = folder.put("recipe.lua", "\xEF\xBB\xBFx = 1\nreturn nowhere");
  const auto box = sandbox();
  EXPECT_EQ(box->run_file(file, "recipe.lua").error().cause, "recipe.lua:2: 'nowhere' is not defined");
  EXPECT_EQ(box->run_file(file, long_name).error().cause, long_name + ":2: 'nowhere' is not defined");
  EXPECT_EQ(box->run_file(folder.path() / "no.lua", "no.lua").error().cause, "no.lua: No such file or directory");
  EXPECT_EQ(box->run_file(folder.path(), "folder").error().cause, "folder: this is not a file");
  const auto large = folder.put("large.lua", std::string(200000, ' '));
  EXPECT_EQ(box->run_file(large, "large.lua").error().exit, Exit::Recipe);
  EXPECT_EQ(box->run_text(std::string(200000, ' '), "large.lua").error().cause, "large.lua has 200000 bytes; Lua texts may have 128 KiB");
}

TEST(Host, CallsAndBinds) {
  const auto box = sandbox();
  lua_State* L = box->state();
  ASSERT_TRUE(box->run_text("return function(a, b) return a + b, 'x' end", "t.lua", 1).ok());
  lua_pushinteger(L, 2);
  lua_pushinteger(L, 3);
  ASSERT_TRUE(box->call(2, 2).ok());
  EXPECT_EQ(lua_tointeger(L, -2), 5);
  lua_settop(L, 0);

  int seen = 0;
  ASSERT_TRUE(box->protect(
                     [](lua_State* S) {
                       lua_pushlightuserdata(S, lua_touserdata(S, 1));
                       lua_pushcclosure(
                           S,
                           [](lua_State* T) {
                             *static_cast<int*>(lua_touserdata(T, lua_upvalueindex(1))) += static_cast<int>(luaL_checkinteger(T, 1));
                             if (luaL_checkinteger(T, 1) < 0) raise(T, recipe_error("below zero", "above it"));
                             return 0;
                           },
                           1);
                       lua_setglobal(S, "see");
                       return 0;
                     },
                     &seen)
                  .ok());
  EXPECT_EQ(run(*box, "see(3) see(4)"), "nil");
  EXPECT_EQ(seen, 7);
  const Status status = box->run_text("\nsee(-1)", "t.lua");
  EXPECT_EQ(status.error().cause, "t.lua:2: below zero");
  EXPECT_EQ(status.error().hint, "above it");
  EXPECT_EQ(lua_gettop(L), 0);
  EXPECT_EQ(run(*box, "see('x')"), "error: t.lua:1: bad argument #1 to 'see' (number expected, got string)");
}

}  // namespace
}  // namespace galley
