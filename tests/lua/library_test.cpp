// The functions written here against Lua's own: the same answers, and errors where Lua has errors.
#include <cstdint>

#include "host/lua/convert.hpp"
#include "tests/lua/helper.hpp"

namespace galley {
namespace {

/// The results of the text in plain Lua, as one text; "error" when it fails.
class PlainLua {
 public:
  PlainLua() : L_(luaL_newstate()) { luaL_openlibs(L_); }
  ~PlainLua() { lua_close(L_); }
  std::string run(const std::string& text) {
    std::string answer = "error";
    if (luaL_dostring(L_, text.c_str()) == LUA_OK) answer = luaL_tolstring(L_, -1, nullptr);
    lua_settop(L_, 0);
    return answer;
  }

 private:
  lua_State* L_;
};

void expect_same(PlainLua& plain, Sandbox& box, const std::string& expression) {
  // All results of the expression in one text.
  const std::string text =
      "local function show(...) local s = '' for i = 1, select('#', ...) do s = s .. tostring((select(i, ...))) .. ';' end return s end "
      "return show(" +
      expression + ")";
  const std::string ours = run(box, text);
  EXPECT_EQ(ours.rfind("error", 0) == 0 ? "error" : ours, plain.run(text)) << expression << "\n" << ours;
}

TEST(Library, AnswersAsLuaDoes) {
  PlainLua plain;
  const auto box = sandbox();
  for (const char* expression :
       {"('hello world'):find('o w')",
        "('hello'):find('l', 1, true)",
        "('hello'):find('')",
        "('hello'):find('', 6)",
        "('hello'):find('', 7)",
        "('a.b'):find('.', 2, true)",
        "('hello'):find('l', -2)",
        "('hello'):find('xyz')",
        "('hello'):match('(h)(.)(%a+)')",
        "('key = value'):match('^(%w+)%s*=%s*(%w+)$')",
        "('abc'):match('()b()')",
        "('f(a(b)c)d'):match('%b()')",
        "('THE (quick) fox'):find('%((%a+)%)')",
        "('hello'):match('.-(l+)')",
        "('[[x]]'):match('%[%[(.-)%]%]')",
        "('x]y'):find('[]]')",
        "('x^y'):find('[%^]')",
        "('a-b'):find('[a%-]', 2)",
        "('abc'):find('[^a-b]')",
        "('THE'):gsub('%f[%a]%a', '<%0>')",
        "('abc'):gsub('', '-')",
        "('abc'):gsub('b*', 'x')",
        "('hello world'):gsub('o', '0', 1)",
        "('hello'):gsub('(l)(.)', '%2%1')",
        "('hello'):gsub('l', { l = 'L' })",
        "('hello'):gsub('.', function(c) if c == 'l' then return 'LL' end end)",
        "('hello'):gsub('l', '%%')",
        "('hello'):gsub('l', '%9')",
        "('hello'):gsub('l', '%')",
        "('hello'):gsub('l', true)",
        "('a,b,,c'):gsub(',', ';', 2)",
        "('abc'):gsub('^a', 'x')",
        "('aaa'):gsub('^a', 'x')",
        "('abc'):gsub('%w', '%0%0')",
        "('x'):gsub('x', 5)",
        "('abcabc'):match('(a)(b)(c)%1%2%3')",
        "('a'):match('%')",
        "('a'):match('[a')",
        "('a'):match('(a')",
        "('a'):match('a)')",
        "('a'):match('%b')",
        "('a'):match('%f')",
        "('a'):match('%1')",
        "('a'):match('[%')",
        "('a'):match('[a-%')",
        "('a\\0b'):find('\\0')",
        "('a\\0b'):find('%z')",
        "('x'):rep(3, ', ')",
        "('x'):rep(0)",
        "('x'):rep(-1)",
        "('').rep('', 5)",
        "('ab'):rep(2)",
        "('x'):rep(1, 'sep')",
        "('%5.2f|%-5d|%s|%q|%x'):format(1.234, 7, 'hi', 'a\\nb', 255)",
        "('%s %s'):format(1, nil)",
        "('%s'):format()",
        "('%d'):format('3')",
        "('%d'):format(3.5)",
        "('%z'):format(1)",
        "('%'):format(1)",
        "('%%'):format()",
        "('%c%c'):format(65, 66)",
        "('%i'):format(42)",
        "('%10.4s|'):format('abcdefgh')",
        "('%a'):format(1)",
        "('%g %g'):format(1e15, 0.1)",
        "table.concat({ 1, 2, 'x' }, '-')",
        "table.concat({}, ',')",
        "table.concat({ 1, 2, 3 }, ',', 2, 3)",
        "table.concat({ 1, {}, 3 })",
        "table.concat({ 'a' }, ',', 1, 2)",
        "table.unpack({ 1, 2, 3 })",
        "table.unpack({ 1, 2, 3 }, 2)",
        "table.unpack({ 1, 2 }, 1, 4)",
        "table.unpack({ 1 }, 2, 1)",
        "table.pack(1, nil, 3).n",
        "(function() local t = { 1, 2, 3 } table.insert(t, 2, 'x') table.insert(t, 9) return table.concat(t, ' ') end)()",
        "(function() local t = { 1, 2, 3 } table.insert(t, 5, 'x') end)()",
        "(function() local t = { 1, 2, 3 } table.insert(t, 0, 'x') end)()",
        "(function() table.insert({}) end)()",
        "(function() table.insert({}, 1, 2, 3) end)()",
        "(function() local t = { 1, 2, 3, 4 } return table.remove(t, 2), table.remove(t), table.concat(t, ' ') end)()",
        "table.remove({})",
        "table.remove({}, 0)",
        "table.remove({ 1 }, 2)",
        "table.remove({ 1 }, 3)",
        "table.concat(table.move({ 1, 2, 3, 4 }, 2, 4, 1), ' ')",
        "table.concat(table.move({ 1, 2, 3, 4 }, 1, 3, 2), ' ')",
        "table.concat(table.move({ 1, 2, 3 }, 1, 3, 3, { 9, 8 }), ' ')",
        "#table.move({ 1 }, 1, 0, 5)",
        "(function() local t = { 5, 2, 8, 1 } table.sort(t) return table.concat(t, ' ') end)()",
        "(function() local t = { 5, 2, 8, 1 } table.sort(t, function(a, b) return a > b end) return table.concat(t, ' ') end)()",
        "(function() local t = { 'b', 'a', 'B' } table.sort(t) return table.concat(t, ' ') end)()",
        "(function() table.sort({ 1, 'a' }) end)()",
        "(function() table.sort({ 1, 2 }, 5) end)()",
        "(function() local s = '' for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do s = s .. k .. v end return s end)()",
        "(function() local s = '' for w in ('one two'):gmatch('%a+') do s = s .. w .. '.' end return s end)()",
        "(function() local n = 0 for _ in ('abc'):gmatch('') do n = n + 1 end return n end)()",
        "(function() local s = '' for p in ('abc'):gmatch('()', 2) do s = s .. p end return s end)()",
        "tostring(nil)",
        "tostring(1e15)",
        "tostring(-0.0)",
        "tostring(2^63)",
        "tostring(true)",
        "tostring('x')",
        "select('#')",
        "tonumber('0x10')",
        "tonumber('z', 36)",
        "rawlen({ 1, 2 })",
        "math.type(1)",
        "math.type(1.0)"}) {
    expect_same(plain, *box, expression);
  }
}

TEST(Library, PatternsMatchAsLuaDoes) {
  PlainLua plain;
  const auto box = sandbox({.seconds = 60});
  uint64_t state = 7;
  const auto random = [&](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  const char* const pieces[] = {"a", "b", "c", ".", "%a", "%d", "%A", "[ab]", "[^a]", "[a-c]", "[%d_]",  "[%a-]", "[]]", "(", ")", "()",
                                "*", "+", "-", "?", "^",  "$",  "%1", "%2",   "%b()", "%f[a]", "%f[%A]", "%%",    "%.",  "[", "]", "%"};
  const char* const subject[] = {"a", "b", "c", "ab", "(", ")", "1", "_", "-", ".", "]", "%"};
  int matched = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string pattern, text;
    for (uint64_t n = 1 + random(6); n > 0; --n) pattern += pieces[random(std::size(pieces))];
    for (uint64_t n = random(9); n > 0; --n) text += subject[random(std::size(subject))];
    const char* const calls[] = {"find", "match", "gsub", "find"};
    const uint64_t which = random(4);
    std::string expression = "string." + std::string(calls[which]) + "('" + text + "', '" + pattern + "'" +
                             (which == 2   ? ", '<%0>'"
                              : which == 3 ? ", " + std::to_string(random(6))
                                           : "") +
                             ")";
    expect_same(plain, *box, expression);
    matched += run(*box, "return pcall(string.find, '" + text + "', '" + pattern + "') and string.find('" + text + "', '" + pattern +
                             "') ~= nil") == "true";
    if (HasFailure()) break;
  }
  EXPECT_GT(matched, 2000);  // else all of them were errors
}

TEST(Library, SortIsStableAndAPermutation) {
  EXPECT_EQ(run("local t = {} for i = 1, 1000 do t[i] = { (i * 7919) % 10, i } end table.sort(t, function(a, b) return a[1] < b[1] end) "
                "for i = 2, 1000 do local a, b = t[i - 1], t[i] if a[1] > b[1] or (a[1] == b[1] and a[2] > b[2]) then return 'wrong at ' "
                ".. i end end return 'sorted'"),
            "sorted");
  EXPECT_EQ(run("local t, n = {}, 0 for i = 1, 1000 do t[i] = i end table.sort(t, function() n = n + 1 return n % 3 == 0 end) "
                "local seen = {} for i = 1, 1000 do seen[t[i]] = true end return #seen"),
            "1000");
  EXPECT_EQ(run("local t = { 3, 1, 2 } table.sort(t, function(a, b) t[1] = nil return a < b end) return table.concat(t)"), "123");
}

TEST(Library, MetamethodsAreNotAsked) {
  EXPECT_EQ(run("local t = setmetatable({ 1, 2 }, { __len = function() return 5 end, __index = function() return 9 end }) return "
                "table.concat(t, ' ') .. #t"),
            "1 25");
}

// --- convert.hpp ----------------------------------------------------------------------------------------------------------------

struct Converted {
  Value value;
};

Status convert(Sandbox& box, const std::string& text, Converted* out) {
  TRY_STATUS(box.run_text("given = " + text, "t.lua"));
  return box.protect(
      [](lua_State* L) {
        lua_getglobal(L, "given");
        static_cast<Converted*>(lua_touserdata(L, 1))->value = Converter(L).read(-1, "given");
        return 0;
      },
      out);
}

std::string conversion_error(const std::string& text) {
  Converted out;
  const auto box = sandbox();
  const Status status = convert(*box, text, &out);
  return status.ok() ? "no error" : status.error().cause;
}

TEST(Convert, ThereAndBack) {
  const auto box = sandbox();
  Converted out;
  ASSERT_TRUE(convert(*box, "{ a = 1, b = 2.5, c = 'x', d = true, e = { 1, 2, { f = {} } }, g = { h = -3 }, i = 1e3 }", &out).ok());
  const Table& table = *out.value.as<Table>();
  EXPECT_EQ(*table.at("a").as<int64_t>(), 1);
  EXPECT_EQ(*table.at("b").as<double>(), 2.5);
  EXPECT_EQ(*table.at("c").as<std::string>(), "x");
  EXPECT_EQ(*table.at("d").as<bool>(), true);
  EXPECT_EQ(table.at("e").as<List>()->size(), 3u);
  EXPECT_EQ(*table.at("g").as<Table>()->at("h").as<int64_t>(), -3);
  EXPECT_EQ(*table.at("i").as<double>(), 1000.0);

  ASSERT_TRUE(box->protect(
                     [](lua_State* L) {
                       push_value(L, static_cast<Converted*>(lua_touserdata(L, 1))->value);
                       lua_setglobal(L, "back");
                       return 0;
                     },
                     &out)
                  .ok());
  EXPECT_EQ(
      run(*box, "return back.a .. back.b .. back.c .. tostring(back.d) .. #back.e .. type(back.e[3].f) .. back.g.h .. math.type(back.i)"),
      "12.5xtrue3table-3float");
}

TEST(Convert, Refuses) {
  EXPECT_EQ(conversion_error("{ 1, x = 2 }"), "'given' mixes a list with named entries such as 'x'");
  EXPECT_EQ(conversion_error("{ a = { 1, nil, 3 } }"), "'given.a' is a list with a hole: it has an element 3 and no element 2");
  EXPECT_EQ(conversion_error("{ [0] = 1 }"), "'given' is a list with a hole: it has an element 0 and no element 1");
  EXPECT_EQ(conversion_error("{ [1.5] = 1 }"), "'given' has a number as a key");
  EXPECT_EQ(conversion_error("{ [true] = 1 }"), "'given' has a boolean as a key");
  EXPECT_EQ(conversion_error("{ { 0 / 0 } }"), "'given[1][1]' is not a finite number");
  EXPECT_EQ(conversion_error("{ x = math.huge }"), "'given.x' is not a finite number");
  EXPECT_EQ(conversion_error("{ x = function() end }"), "'given.x' is a function and no plain data");
  EXPECT_NE(conversion_error("{} given.x = given").find("has more than 32 levels, or contains itself"), std::string::npos);
  EXPECT_EQ(conversion_error("{} for i = 1, 30 do given = { given, given } end"), "too many values for a description");
  EXPECT_EQ(conversion_error("{} local s = ('x'):rep(1e5) for i = 1, 100 do given[i] = s end"), "too much text for a description");
}

}  // namespace
}  // namespace galley
