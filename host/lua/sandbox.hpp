// Runs Lua 5.4 in a sandbox. Recipes and model families may be text from strangers: they may compute, and that is all. What a script sees
// is a function of its files and of what the host gives it: no clock, no random numbers, no addresses, no file except through `require`,
// and pairs() walks tables in the order of their keys (library/libraries.cpp).
//
// Limits. Memory is counted in Lua's allocator, which everything goes through. Time is checked every few instructions, at every call, at
// every larger allocation and within patterns; the other functions of Lua's libraries end soon, or are bounded so that they do
// (library/libraries.cpp). Once a limit has been passed it stays passed: every further call and every further few instructions raise again, so that
// no pcall in the script survives it.
//
// Lua is the build that raises by C++ exceptions, so destructors run in functions that call Lua's API. Handlers in such functions must
// catch std::exception and never `...`, which would swallow an error of Lua's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <lua.hpp>

#include "host/base/result.hpp"
#include "host/lua/library/raise.hpp"
#include "host/lua/library/script_host.hpp"

namespace galley {

struct LuaLimits {
  double seconds = 1;          ///< processor time of the thread inside Lua, all calls together
  size_t bytes = 64u << 20;    ///< bytes of everything that Lua holds, garbage not yet collected included
  size_t block = 512u << 10;   ///< bytes of one string, one table's array or hash part, or the stack
  size_t source = 128u << 10;  ///< bytes of one file: the parser cannot be stopped halfway
};

/// A file that ran: `name` is how messages call it.
struct LuaSource {
  std::string name;
  std::filesystem::path path;  ///< with its symbolic links resolved
  std::string text;
  std::string module = {};  ///< "lib/common.lua" where it was required
};

/// One Lua state. Owns everything in it; closed with its owner. Used by one thread at a time; states are independent of each other.
class Sandbox final : public ScriptHost {
 public:
  /// The files that `require` may run: those whose real path lies below the real path of a root, or any.
  enum class Reach : uint8_t { Roots, Anywhere };

  /// `roots` are the folders in which `require "a.b"` looks for a/b.lua, in this order. A name with a slash is a path: relative to a root,
  /// or absolute, with ".lua" or without ("../common"). A root that does not exist holds nothing.
  static Result<std::unique_ptr<Sandbox>> create(const LuaLimits& limits, std::vector<std::filesystem::path> roots,
                                                 Reach reach = Reach::Roots);
  ~Sandbox() override;
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  /// Returns the sandbox of a state. Never null for a state made by create().
  static Sandbox& of(lua_State* L) { return static_cast<Sandbox&>(ScriptHost::of(L)); }
  lua_State* state() const { return L_; }
  const LuaLimits& limits() const { return limits_; }

  // --- For the host, outside of Lua. On success `results` values are on the stack; on failure the stack is as it was before the
  // function and its arguments. A script's error has exit code Recipe and the cause "<file>:<line>: …"; further lines of it are the hint.

  /// Reads a text file and runs it. `name` is how messages call it (the path as the user typed it).
  Status run_file(const std::filesystem::path& path, const std::string& name, int results = 0);
  Status run_text(std::string_view text, const std::string& name, int results = 0);
  /// Calls the function that lies below its `arguments` on the stack.
  Status call(int arguments, int results);
  /// Calls a C function with `context` as its one argument (light userdata): the way to use those parts of Lua's API that can raise.
  Status protect(lua_CFunction body, void* context, int results = 0);

  /// Gives modules that `require` takes instead of files. Must be called before any script runs.
  void provide(std::vector<LuaSource> modules) { provided_ = std::move(modules); }

  /// Gives the script its time anew, for scripts that are used again and again; does nothing once a limit has been passed. Not while Lua
  /// runs.
  void renew() { spent_ = 0; }

  /// Returns every file that has run so far, in order; required ones come after the file that required them.
  const std::vector<LuaSource>& sources() const { return sources_; }
  /// Return processor time and bytes used so far; peak_bytes() never exceeds the limit by more than a reserve for messages.
  double seconds() const;
  size_t peak_bytes() const { return peak_; }
  bool exceeded() const { return exceeded_ != Limit::None; }

  // --- For C functions that Lua calls; these raise.

  void check(lua_State* L) override;
  /// Compiles a text and pushes the function, or raises.
  void load(lua_State* L, std::string_view text, const std::string& name);
  void require(lua_State* L, const std::string& module) override;

 private:
  enum class Limit { None, Time, Bytes, Block };
  class Clock;

  Sandbox(const LuaLimits& limits, std::vector<std::filesystem::path> roots, Reach reach)
      : limits_(limits), roots_(std::move(roots)), reach_(reach) {}
  static void* allocate(void* self, void* block, size_t old_size, size_t new_size);
  static void hook(lua_State* L, lua_Debug* event);
  static int report(lua_State* L);
  bool out_of_time();
  void exceed(Limit limit, size_t asked = 0);
  Error limit_error() const;
  Error take_error(int status);
  /// Returns whether a real path lies below a root, or any file may run.
  bool allowed(const std::filesystem::path& real) const;
  Result<LuaSource> read_source(const std::filesystem::path& path, const std::string& name) const;
  Result<LuaSource> find_module(const std::string& module) const;

  LuaLimits limits_;
  std::vector<std::filesystem::path> roots_;
  Reach reach_;
  std::vector<LuaSource> sources_, provided_;
  lua_State* L_ = nullptr;
  size_t bytes_ = 0, peak_ = 0;
  int depth_ = 0;          ///< depth of call() within call(); the clock runs while it is > 0
  double spent_ = 0;       ///< processor time of finished calls
  double started_ = 0;     ///< processor time at the beginning of the outermost call
  double look_again_ = 0;  ///< before this instant (monotonic) the time cannot be up
  Limit exceeded_ = Limit::None;
  size_t asked_ = 0;   ///< the block that was refused
  bool deep_ = false;  ///< the calls were nested deeply then
  std::string place_;  ///< "file:line" where the limit was passed
};

}  // namespace galley
