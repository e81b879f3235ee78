// What a script in a Sandbox finds in its globals. Everything is taken from a list of names or written here; nothing is there by accident.
#pragma once

#include <lua.hpp>

#include "host/lua/sandbox.hpp"

namespace galley {

/// Fills the globals of a new state: a lua_CFunction, for Sandbox::protect. Raises only when there is no memory.
int open_libraries(lua_State* L);

// The parts of it; each leaves the stack as it was.
void open_base(lua_State* L);
void open_string(lua_State* L);
void open_table(lua_State* L);

/// Looks at the limits once in a while: for the loops of C functions.
class Ticker {
 public:
  explicit Ticker(lua_State* L) : L_(L), sandbox_(Sandbox::of(L)) {}
  void tick(size_t work = 1) {
    done_ += work;
    if (done_ < kWork) return;
    done_ = 0;
    sandbox_.check(L_);
  }

 private:
  static constexpr size_t kWork = 2048;
  lua_State* L_;
  Sandbox& sandbox_;
  size_t done_ = 0;
};

/// Pushes the text of any value, as tostring() gives it: __tostring is obeyed, and what has no text is called by its type, because an
/// address would differ from run to run.
void push_text(lua_State* L, int index);

/// Sorts the elements 1 … n of the table at `table` in place, stably, with at most n·⌈log2 n⌉ calls of `less`, which compares the two values
/// at the given indices; whatever it answers, the result is a permutation. `less` may raise.
void sort_elements(lua_State* L, int table, lua_Integer n, bool (*less)(lua_State* L, int a, int b));

}  // namespace galley
