// Converts between Lua's values and plain data.
#pragma once

#include <functional>
#include <string>

#include <lua.hpp>

#include "host/base/value.hpp"

namespace galley {

/// Reads values of Lua as data. A table with the keys 1 … n is a List, one with texts as keys a Table, the empty one a List; both kinds of
/// keys in one table, holes, numbers that are not finite, and more than 32 levels are errors. Metamethods are not called.
/// What one converter reads is bounded in sum (65,536 values, 4 MiB of text, or as many times that as it is made for), since tables may
/// share their parts. Raises: it is for C functions that Lua calls. Used by one thread at a time.
class Converter {
 public:
  /// Makes a Value of a function or userdata, which is no data, or raises.
  using ReadForeign = std::function<Value(lua_State* L, int index, const std::string& name)>;

  /// `bytes` bounds the text, and in proportion the number of values; give more where more than a description is read.
  explicit Converter(lua_State* L, ReadForeign foreign = {}, size_t bytes = 4u << 20)
      : L_(L), foreign_(std::move(foreign)), most_bytes_(bytes) {}
  /// `name` is how messages call the value: "betas" gives "'betas[2]' is not a finite number".
  Value read(int index, const std::string& name) { return read(index, name, 0); }

 private:
  Value read(int index, const std::string& name, int level);
  Value read_table(int index, const std::string& name, int level);
  std::string read_text(int index);

  lua_State* L_;
  ReadForeign foreign_;
  size_t most_bytes_;
  size_t values_ = 0, bytes_ = 0;
};

/// Reads one value by itself.
Value to_value(lua_State* L, int index);

/// Pushes the value, tables and lists as new tables. Nil is nothing, as always in Lua, or kept as a light userdata that is null. Raises when
/// there is no memory, and for what is foreign, which Lua has no form of.
enum class Nils : uint8_t { Absent, Kept };
void push_value(lua_State* L, const Value& value, Nils nils = Nils::Absent);

}  // namespace galley
