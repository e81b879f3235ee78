// find, match, gmatch and gsub beside those of Lua's library, which a plain state has.
#include <random>
#include <string>
#include <vector>

#include "tests/lua/helper.hpp"

namespace galley {
namespace {

// Everything that the four give for one text and pattern, or their errors, as one text. `text` and `pattern` are globals.
constexpr const char* kAll = R"(
local out = {}
local function show(...)
  for _, value in ipairs(table.pack(...)) do out[#out + 1] = math.type(value) == 'integer' and '#' .. value or tostring(value) end
  out[#out + 1] = select('#', ...) .. ';'
end
local function try(f, ...)
  show(select(2, pcall(f, ...)))
end
for _, init in ipairs { 1, 3, -2, 0, -100, 100 } do
  try(string.find, text, pattern, init)
  try(string.match, text, pattern, init)
end
try(string.find, text, pattern, 1, true)
try(function() local n = 0 for a, b, c in text:gmatch(pattern) do show(a, b, c) n = n + 1 end return n end)
try(function() for a, b in text:gmatch(pattern, 3) do show(a, b) end end)
try(string.gsub, text, pattern, '<%0>')
try(string.gsub, text, pattern, '%1%%', 2)
try(string.gsub, text, pattern, '%2')
try(string.gsub, text, pattern, '%x')
try(string.gsub, text, pattern, 7)
try(string.gsub, text, pattern, { a = 'A', b = false, [1] = 'one', [''] = 'none' })
try(string.gsub, text, pattern, function(a, b) if a == 'a' then return end return tostring(a) .. tostring(b) end)
try(string.gsub, text, pattern, function() return {} end)
try(string.gsub, text, pattern, true)
return table.concat(out, ' ')
)";

/// A plain state with Lua's own libraries.
class Plain {
 public:
  Plain() : L_(luaL_newstate()) { luaL_openlibs(L_); }
  ~Plain() { lua_close(L_); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  std::string run(const std::string& text, const std::string& pattern) {
    set("text", text);
    set("pattern", pattern);
    if (luaL_loadbuffer(L_, kAll, std::char_traits<char>::length(kAll), "@t.lua") != LUA_OK || lua_pcall(L_, 0, 1, 0) != LUA_OK)
      return std::string("error: ") + lua_tostring(L_, -1);
    size_t size = 0;
    const char* result = lua_tolstring(L_, -1, &size);
    std::string answer(result, size);
    lua_pop(L_, 1);
    return answer;
  }

 private:
  void set(const char* name, const std::string& value) {
    lua_pushlstring(L_, value.data(), value.size());
    lua_setglobal(L_, name);
  }
  lua_State* L_;
};

std::string ours(const std::string& text, const std::string& pattern) {
  const auto box = sandbox();
  for (const auto& [name, value] : {std::pair("text", &text), std::pair("pattern", &pattern)}) {
    lua_pushlstring(box->state(), value->data(), value->size());
    lua_setglobal(box->state(), name);
  }
  return run(*box, kAll);
}

TEST(Patterns, AreThoseOfLua) {
  Plain plain;
  const std::string long_text(300, 'a');
  for (const auto& [text, pattern] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"hello world", "o"},
           {"hello world", "(%w+) (%w+)"},
           {"  trim  ", "^%s*(.-)%s*$"},
           {"key = value", "^(%w+)%s*=%s*(%w+)$"},
           {"THE (quick) fox", "%((%a+)%)"},
           {"THE (quick) fox", "%f[%a]%a+%f[%A]"},
           {"f(a(b)c)d(", "%b()"},
           {"abcabc", "(a)(b)(c)%1%2%3"},
           {"abc", "()b()"},
           {std::string("a\0b\0", 4), std::string("[\0]", 3)},
           {std::string("a\0b\0", 4), std::string("\0b", 2)},
           {std::string("a\0b", 3), "%z"},
           {"a-b]c^d", "[]%-^]"},
           {"a-b]c^d", "[^]a]"},
           {"a-b", "[a-]"},
           {"caf\xc3\xa9", "[\x80-\xff]+"},
           {"x", "%"},
           {"x", "["},
           {"x", "[%"},
           {"x", "[^"},
           {"x", "(x"},
           {"x", "x)"},
           {"x", "%1"},
           {"x", "(%1)"},
           {"x", "%b"},
           {"x", "%bx"},
           {"x", "%f"},
           {"$x$", "$"},
           {"$x$", "$x"},
           {"^x", "x^"},
           {"aaa", "a-"},
           {"aaa", "a?a?a?a"},
           {"", ("a*" + std::string(300, '?'))},
           {long_text, std::string(400, '(')},
           {long_text, "(((((((((((((((((((((((((((((((((a)))))))))))))))))))))))))))))))))"},
       })
    EXPECT_EQ(ours(text, pattern), plain.run(text, pattern)) << text << "  " << pattern;
  std::string deep;
  for (int i = 0; i < 250; ++i) deep += "a?";
  EXPECT_EQ(ours(long_text, deep), plain.run(long_text, deep));
  EXPECT_EQ(ours("b", deep), plain.run("b", deep));
}

// Patterns put together at random of what patterns are made of, most of them right, many wrong.
TEST(Patterns, MadeAtRandomAreThoseOfLua) {
  Plain plain;
  std::mt19937 random(1);
  const auto pick = [&](const std::vector<std::string>& from) { return from[random() % from.size()]; };
  const std::vector<std::string> parts = {"a",     "b",     ".",      "%a", "%d", "%s", "%S", "%w",  "[ab]", "[^a]", "[a-c]",
                                          "[%d_]", "%(",    "(",      ")",  "()", "(a", "b)", "(.)", "%1",   "%2",   "%b()",
                                          "%bab",  "%f[a]", "%f[%W]", "^",  "$",  "%",  "[",  "]",   "%.",   "-x"};
  const std::vector<std::string> repeats = {"", "", "", "*", "+", "-", "?"};
  const std::vector<std::string> letters = {"a", "b", "c", "ab", "1", " ", "(", ")", "_", ".", "%", "\xc3"};
  for (int i = 0; i < 3000; ++i) {
    std::string text, pattern;
    for (size_t n = random() % 12; n > 0; --n) text += pick(letters);
    for (size_t n = 1 + random() % 5; n > 0; --n) pattern += pick(parts) + pick(repeats);
    ASSERT_EQ(ours(text, pattern), plain.run(text, pattern)) << text << "  " << pattern;
  }
}

TEST(Patterns, OfALongTextEnd) {
  EXPECT_EQ(run("return ('ab'):rep(1e5):gsub('a', 'x'):sub(1, 4)"), "xbxb");
  EXPECT_EQ(run("return #('x = 1\\n'):rep(5e4):match('^(.-)%s*$')"), "299999");
}

}  // namespace
}  // namespace galley
