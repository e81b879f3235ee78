#include "host/recipe/language.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "host/base/nearest.hpp"
#include "host/recipe/declared.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {
namespace {

/// Metatables of the userdata that stand for entries; each holds the entry's number.
constexpr const char* kMetatables[] = {"use", "model", "data", "schedule", "function", "recipe", "compare"};

const char* metatable_of(Entry::Kind kind) { return kMetatables[static_cast<size_t>(kind)]; }

std::string text_at(lua_State* L, int index) {
  size_t size = 0;
  const char* text = lua_tolstring(L, index, &size);
  return {text, size};
}

Place here(lua_State* L) {
  Place place;
  place.line = current_line(L, &place.file);
  return place;
}

}  // namespace

const char* Entry::kind_name() const {
  static constexpr const char* names[] = {"a strategy", "a model", "data", "a schedule", "a function", "a recipe", "a comparison"};
  return names[static_cast<size_t>(kind)];
}

/// The functions that Lua calls. Upvalue 1: the language.
struct LanguageFunctions {
  static Language& language(lua_State* L) { return *static_cast<Language*>(lua_touserdata(L, lua_upvalueindex(1))); }

  static Entry& add(lua_State* L, Entry::Kind kind, std::string name) {
    Entry& entry = language(L).add(kind, std::move(name));
    entry.place = here(L);
    return entry;
  }

  static int push(lua_State* L, const Entry& entry) {
    *static_cast<size_t*>(lua_newuserdatauv(L, sizeof(size_t), 0)) = entry.number;
    luaL_setmetatable(L, metatable_of(entry.kind));
    return 1;
  }

  /// Takes functions and entries among a recipe's values.
  static Value foreign(Language& language, lua_State* L, int index, const std::string& name) {
    for (const char* metatable : kMetatables) {
      const auto* number = static_cast<const size_t*>(luaL_testudata(L, index, metatable));
      if (number) return EntryReference(language.entry(*number));
    }
    if (!lua_isfunction(L, index)) raise(L, recipe_error("'" + name + "' is a " + luaL_typename(L, index) + " and no plain data"));
    Entry& entry = language.add(Entry::Kind::Function, name);
    lua_pushvalue(L, index);
    lua_Debug info;
    lua_getinfo(L, ">S", &info);
    if (info.linedefined > 0) entry.place = {info.source[0] == '@' ? info.source + 1 : info.short_src, info.linedefined};
    lua_pushvalue(L, index);
    entry.function = luaL_ref(L, LUA_REGISTRYINDEX);
    return EntryReference(entry);
  }

  /// The one table that `what` takes, as named options.
  static Table options(lua_State* L, int index, const std::string& what) {
    if (!lua_istable(L, index))
      raise(L, recipe_error(what + " takes a table in braces, got " + luaL_typename(L, index), "write " + what + " { name = value, … }"));
    if (lua_gettop(L) > index) raise(L, recipe_error(what + " takes one table, got more"));
    Value value = language(L).converter_.read(index, "");
    if (auto* table = std::get_if<Table>(&value)) return std::move(*table);
    if (value.as<List>()->empty()) return {};
    raise(L, recipe_error(what + " takes named options, got a list", "write " + what + " { name = value, … }"));
  }

  // use "name" { … }, or use "name" alone
  static int use(lua_State* L) {
    const bool name = lua_gettop(L) == 1 && lua_type(L, 1) == LUA_TSTRING && lua_rawlen(L, 1) > 0 && lua_rawlen(L, 1) <= 100;
    if (!name) raise(L, recipe_error("use takes the name of a strategy", "write use \"NAME\" { … }"));
    const Value text = language(L).converter_.read(1, "use");
    return push(L, add(L, Entry::Kind::Use, *text.as<std::string>()));
  }

  // __call of what use gave
  static int configure(lua_State* L) {
    const size_t number = *static_cast<const size_t*>(luaL_checkudata(L, 1, metatable_of(Entry::Kind::Use)));
    const std::string name = language(L).entries_[number].name;
    if (!language(L).entries_[number].options.empty()) raise(L, recipe_error("use \"" + name + "\" has its options already"));
    Table table = options(L, 2, "use \"" + name + "\"");
    Entry& entry = add(L, Entry::Kind::Use, name);
    entry.options = std::move(table);
    entry.place = language(L).entries_[number].place;
    return push(L, entry);
  }

  static int model(lua_State* L) {
    Table table = options(L, 1, "model");
    Entry& entry = add(L, Entry::Kind::Model, "model");
    entry.options = std::move(table);
    return push(L, entry);
  }

  // data.KIND. Upvalue 2: the kind
  static int data(lua_State* L) {
    const std::string kind = text_at(L, lua_upvalueindex(2));
    Entry read;
    if (kind == "mix" && lua_gettop(L) == 1 && lua_istable(L, 1)) read_all(L, 1, "data.mix", &read);
    else read.options = options(L, 1, "data." + kind);
    Entry& entry = add(L, Entry::Kind::Data, kind);
    entry.options = std::move(read.options);
    entry.items = std::move(read.items);
    return push(L, entry);
  }

  // __index of data. Which kinds there are is known later.
  static int data_kind(lua_State* L) {
    const std::string kind = lua_type(L, 2) == LUA_TSTRING ? text_at(L, 2).substr(0, 60) : std::string(luaL_typename(L, 2));
    const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
    if (lua_type(L, 2) != LUA_TSTRING || kind.empty() || !std::ranges::all_of(kind, plain))
      raise(L, recipe_error("there is no data." + kind, "the name of a kind of data has letters, digits and '_' only: data.text"));
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushlstring(L, kind.data(), kind.size());
    lua_pushcclosure(L, data, 2);
    return 1;
  }

  // cosine and the like. Upvalue 2: the name
  static int schedule(lua_State* L) {
    const std::string name = text_at(L, lua_upvalueindex(2));
    Table table = options(L, 1, name);
    Entry& entry = add(L, Entry::Kind::Schedule, name);
    entry.options = std::move(table);
    return push(L, entry);
  }

  static int constant(lua_State* L) {
    if (lua_gettop(L) != 1 || lua_type(L, 1) == LUA_TTABLE) raise(L, recipe_error("constant takes a number", "write constant(1e-3)"));
    Value value = language(L).converter_.read(1, "value");
    Entry& entry = add(L, Entry::Kind::Schedule, "constant");
    entry.options.emplace("value", std::move(value));
    return push(L, entry);
  }

  // arg(name [, default])
  static int arg(lua_State* L) {
    const size_t size = lua_type(L, 1) == LUA_TSTRING ? lua_rawlen(L, 1) : 0;
    if (size == 0 || size > 60 || text_at(L, 1).find_first_of("= \t\n") != std::string::npos) {
      raise(L, recipe_error("arg takes the name of an argument, and perhaps a default", "write arg(\"batch\", 4)"));
    }
    if (lua_gettop(L) > 2) raise(L, recipe_error("arg takes a name and a default, got more"));
    lua_settop(L, 2);
    Language& made = language(L);
    const Value name = made.converter_.read(1, "argument"), otherwise = made.converter_.read(2, "default");
    const Result<Value> value = made.arguments_.ask(*name.as<std::string>(), otherwise, here(L));
    if (!value) raise(L, value.error());
    push_value(L, *value);
    return 1;
  }

  /// The named and the positional entries of a table, but for the one called `read_elsewhere`.
  static void read_all(lua_State* L, int index, const std::string& owner, Entry* out, std::string_view read_elsewhere = {}) {
    Language& made = language(L);
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
      if (lua_type(L, -2) == LUA_TSTRING) {
        std::string name = text_at(L, -2);
        if (!read_elsewhere.empty() && name == read_elsewhere) continue;
        Value value = made.converter_.read(-1, name);
        out->options.emplace(std::move(name), std::move(value));
      } else if (lua_isinteger(L, -2)) {
        const int64_t position = lua_tointeger(L, -2);
        out->items.emplace(position, made.converter_.read(-1, "entry " + std::to_string(position)));
      } else {
        raise(L, recipe_error("an entry of " + owner + " has a " + luaL_typename(L, -2) + " as its name"));
      }
    }
  }

  static int recipe(lua_State* L) {
    if (lua_gettop(L) != 1 || !lua_istable(L, 1))
      raise(L, recipe_error("recipe takes a table in braces", "write return recipe { model = …, data = …, steps = … }"));
    Entry read;
    read_all(L, 1, "the recipe", &read);
    Entry& entry = add(L, Entry::Kind::Recipe, "recipe");
    entry.options = std::move(read.options);
    entry.items = std::move(read.items);
    return push(L, entry);
  }

  // compare { …, variants = { NAME = { … }, … } }: a variant is written as a recipe is, and its name is told apart from others'.
  static int compare(lua_State* L) {
    if (lua_gettop(L) != 1 || !lua_istable(L, 1))
      raise(L, recipe_error("compare takes a table in braces", std::string("write return ") + declared_compare().written));
    Entry read;
    read_all(L, 1, "the comparison", &read, "variants");
    Table variants;
    if (lua_getfield(L, 1, "variants") != LUA_TNIL) {
      const int index = lua_gettop(L);
      if (!lua_istable(L, index)) raise(L, recipe_error("'variants' of the comparison must be a table of variants by name"));
      for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        const std::string name = lua_type(L, -2) == LUA_TSTRING ? text_at(L, -2) : std::string();
        if (!is_variant_name(name) || !lua_istable(L, -1))
          raise(L, recipe_error("'variants' of the comparison must be a table of variants by name, in letters, digits, '-' and '_'",
                                "write variants = { plain = { use \"NAME\" { … } }, lean = { … } }"));
        Entry one;
        read_all(L, lua_gettop(L), "variant '" + name + "'", &one);
        Entry& variant = add(L, Entry::Kind::Recipe, name);
        variant.options = std::move(one.options);
        variant.items = std::move(one.items);
        variants.emplace(name, EntryReference(variant));
      }
    }
    Entry& entry = add(L, Entry::Kind::Compare, "compare");
    entry.options = std::move(read.options);
    entry.items = std::move(read.items);
    entry.options.emplace("variants", Value(std::move(variants)));
    return push(L, entry);
  }

  // one_of { a, b, … }
  static int one_of(lua_State* L) {
    const bool list = lua_gettop(L) == 1 && lua_istable(L, 1) && lua_rawlen(L, 1) > 0;
    if (!list) raise(L, recipe_error("one_of takes what there is to choose from, in braces", "write batch = one_of { 8, 4, 2, 1 }"));
    Language& made = language(L);
    const Place place = here(L);
    const size_t count = lua_rawlen(L, 1);
    const auto asked =
        std::find_if(made.offers_.begin(), made.offers_.end(), [&](const Offer& o) { return o.place.text() == place.text(); });
    if (asked != made.offers_.end() && asked->count != count)
      raise(L, recipe_error("one_of offers " + std::to_string(asked->count) + " and " + std::to_string(count) + " in the same line",
                            "write each one_of in a line of its own"));
    const auto chosen = place.file == made.name_ ? made.choices_.find(place.line) : made.choices_.end();
    const size_t index = chosen == made.choices_.end() ? 1 : chosen->second;
    if (index < 1 || index > count)
      raise(L, recipe_error("one_of offers " + std::to_string(count) + ", and the choice is number " + std::to_string(index)));
    if (asked == made.offers_.end()) made.offers_.push_back({place, count, index});
    lua_rawgeti(L, 1, static_cast<lua_Integer>(index));
    return 1;
  }

  /// It becomes the name of a folder.
  static bool is_variant_name(const std::string& name) {
    return !name.empty() && name.size() <= 60 &&
           std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
  }

  /// The functions under their names, the second upvalue being the name. The table is on top.
  static void define(lua_State* L, Language* made, const char* name, lua_CFunction function) {
    lua_pushlightuserdata(L, made);
    lua_pushstring(L, name);
    lua_pushcclosure(L, function, 2);
    lua_setfield(L, -2, name);
  }

  static int open(lua_State* L) {
    auto* made = static_cast<Language*>(lua_touserdata(L, 1));
    for (const char* name : kMetatables) {
      luaL_newmetatable(L, name);
      lua_pushboolean(L, 0);
      lua_setfield(L, -2, "__metatable");
      if (name == metatable_of(Entry::Kind::Use)) define(L, made, "__call", configure);
      lua_pop(L, 1);
    }
    lua_pushglobaltable(L);
    const luaL_Reg functions[] = {{"use", use},       {"model", model},     {"arg", arg},
                                  {"recipe", recipe}, {"compare", compare}, {"one_of", one_of}};
    for (const luaL_Reg& function : functions) define(L, made, function.name, function.func);
    for (const Declared& one : declared_schedules()) define(L, made, one.name.c_str(), one.name == "constant" ? constant : schedule);

    lua_newtable(L);
    lua_newtable(L);
    define(L, made, "__index", data_kind);
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, "data");
    return 0;
  }
};

Language::Language(Sandbox& sandbox, Arguments& arguments)
    : sandbox_(sandbox), arguments_(arguments), converter_(sandbox.state(), [this](lua_State* L, int index, const std::string& name) {
        return LanguageFunctions::foreign(*this, L, index, name);
      }) {}

Status Language::open() { return sandbox_.protect(LanguageFunctions::open, this); }

Entry& Language::add(Entry::Kind kind, std::string name) {
  Entry& entry = entries_.emplace_back();
  entry.number = entries_.size() - 1;
  entry.kind = kind;
  entry.name = std::move(name);
  return entry;
}

const Entry* find_entry(const Value& value) {
  const auto* reference = value.as<EntryReference>();
  return reference ? &reference->entry() : nullptr;
}

/// Runs the text and returns the entry that it returns; null: something else.
Result<Entry*> Language::evaluate(std::string_view text, const std::string& name) {
  struct Context {
    Language& language;
    std::string_view text;
    const std::string& name;
    Entry* made;
  };
  Context context{*this, text, name, nullptr};
  TRY_STATUS(sandbox_.protect(
      [](lua_State* L) {
        auto& c = *static_cast<Context*>(lua_touserdata(L, 1));
        c.language.sandbox_.load(L, c.text, c.name);
        lua_call(L, 0, 1);
        for (const char* metatable : kMetatables)
          if (const auto* number = static_cast<const size_t*>(luaL_testudata(L, -1, metatable))) c.made = &c.language.entries_[*number];
        return 0;
      },
      &context));
  return context.made;
}

Result<const Entry*> Language::run(std::string_view text, const std::string& name) {
  name_ = name;
  const Entry* made = TRY(evaluate(text, name));
  if (!made || (made->kind != Entry::Kind::Recipe && made->kind != Entry::Kind::Compare))
    return recipe_error(name + ": the file does not return a recipe",
                        "its last statement is return recipe { model = …, data = …, steps = … }");
  return made;
}

Status Language::add_use(const std::string& written) {
  const auto letter = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  const auto end = std::ranges::find_if_not(written, letter);
  const std::string name(written.begin(), end), options(end, written.end()), flag = "--use " + name;
  const size_t first = options.find_first_not_of(' ');
  Entry* made = nullptr;
  if (!name.empty() && (first == options.npos || options[first] == '{'))
    made = TRY(evaluate("return use \"" + name + "\"" + options, flag));
  if (!made || made->kind != Entry::Kind::Use)
    return recipe_error("--use '" + written + "': expected NAME, or NAME { option = value, … }",
                        "as a recipe writes it after `use`, but for the quotes around the name");
  made->place = {flag, 0};
  added_.push_back(made);
  return ok();
}

Result<Schedule> Language::tabulate(const Entry& function, int64_t steps, const std::string& option, const Place& given) {
  struct Context {
    int function;
    int64_t step;
    std::vector<double> table;
    std::string cause;
  };
  Context context{function.function, 0, std::vector<double>(static_cast<size_t>(steps)), {}};
  Status status = sandbox_.protect(
      [](lua_State* L) {
        auto& c = *static_cast<Context*>(lua_touserdata(L, 1));
        for (double& value : c.table) {
          ++c.step;
          lua_rawgeti(L, LUA_REGISTRYINDEX, c.function);
          lua_pushinteger(L, c.step);
          lua_pushinteger(L, static_cast<lua_Integer>(c.table.size()));
          lua_call(L, 2, 1);
          value = lua_tonumber(L, -1);
          const bool number = lua_type(L, -1) == LUA_TNUMBER;
          if (!number || !std::isfinite(value)) {
            c.cause = std::isnan(value)  ? "nan"
                      : number           ? (value > 0 ? "inf" : "-inf")
                      : lua_isnil(L, -1) ? "nil"
                                         : std::string("a ") + luaL_typename(L, -1);
            return 0;
          }
          lua_pop(L, 1);
        }
        return 0;
      },
      &context);
  const std::string place = (function.place.line > 0 ? function.place : given).text() + ": ";
  if (!status) {
    Error error = std::move(status).error();
    if (!has_place(error.cause)) error.cause = place + error.cause;
    return error;
  }
  if (!context.cause.empty()) {
    return recipe_error(place + "the schedule of '" + option + "' returned " + context.cause + " at step " + std::to_string(context.step) +
                        "; it must be a finite number");
  }
  return Schedule{function.place.line > 0 ? "function at " + function.place.text() : "function", std::move(context.table)};
}

}  // namespace galley
